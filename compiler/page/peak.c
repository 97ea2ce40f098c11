/* Limits of this machine: fused multiply-adds per second, and bytes per second of memory.
 *
 *   peak fma THREADS SECONDS                    prints FLOP/s
 *   peak matrix THREADS SECONDS                 the same of products of bfloat16 on the matrix unit, 0 where there is none
 *   peak clock THREADS SECONDS                  prints dependent additions of whole numbers per second: a core's clock
 *   peak latency THREADS SECONDS                the same of fused multiply-adds that wait for each other
 *   peak stream THREADS SECONDS BYTES SOURCES   prints bytes/s; BYTES is the working set of one thread: SOURCES arrays
 *                                               (0 to 8) that are read and added up, and one that the sum is written
 *                                               to. 2 is a triad, 1 a copy; with SOURCES -1 one array is only read
 *
 * As a shared library: halotile_pulse(THREADS, SECONDS), FLOP/s at this moment.
 *
 * Threads start together at a barrier and do the same work; the slowest one counts. The upper quartile of many short rounds
 * is printed: above what other processes disturb, below a lucky moment of the clock.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_MATRIX_UNIT 1
#else
#define HAS_MATRIX_UNIT 0
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vec __attribute__((vector_size(LANES * 4)));

/* Twelve independent chains: more than latency times ports of any core so far, fewer than 16 registers. They are written out,
 * because an array of them may end up in memory. */
#define CHAINS 12
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

static pthread_barrier_t barrier;
static int kind;
static long steps;
static size_t bytes;
static int sources;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float fma_loop(long n) {
    float seed = (float)(n & 1) + 1.0f, total = 0.0f;
    vec zero = {0}, scale = zero + 0.999f * seed / seed, shift = zero + 1e-3f * seed, sum = zero;
#define START(k) vec x##k = shift * (float)(k + 1);
#define STEP(k) x##k = x##k * scale + shift;
#define ADD(k) sum += x##k;
    EACH(START)
    for (long i = 0; i < n; i++) { EACH(STEP) }
    EACH(ADD)
    for (int l = 0; l < LANES; l++) total += sum[l];
    return total;
}

/* Additions that wait for each other, a cycle each. Of a constant, some cores would do several at once. */
#define ADDITIONS 16
static float clock_loop(long n) {
    unsigned long sum = (unsigned long)n | 1, more = sum | 3;
    __asm__ volatile("" : "+r"(more));
    for (long i = 0; i < n; i++) {
#define ONE sum += more; __asm__ volatile("" : "+r"(sum));
#define FOUR ONE ONE ONE ONE
        FOUR FOUR FOUR FOUR
    }
    return (float)sum;
}

#define WAITING 8
static float latency_loop(long n) {
    float seed = (float)(n & 1) + 1.0f;
    vec zero = {0}, scale = zero + 0.999f * seed / seed, shift = zero + 1e-3f * seed, x = shift;
#define NEXT x = x * scale + shift;
    for (long i = 0; i < n; i++) { NEXT NEXT NEXT NEXT NEXT NEXT NEXT NEXT }
    return x[0];
}

#define TILE_FLOPS (2.0 * 16 * 16 * 32) /* of one multiply-add */
#define TILES 4                         /* sums: from each one's multiply-add to its next, the others' take longer */

#if HAS_MATRIX_UNIT
static int granted(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

static void matrix_loop(long n) {
    unsigned short data[2 * 16 * 32]; /* from 1 to 2, bits at random: zeros take less power, and so a higher clock */
    const unsigned short *more = data + 16 * 32;
    unsigned bits = 1;
    struct { unsigned char palette, rest[15]; unsigned short bytes[16]; unsigned char rows[16]; } shape;
    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = 64;
        shape.rows[i] = 16;
    }
    for (int i = 0; i < 2 * 16 * 32; i++) {
        bits = bits * 1664525u + 1013904223u;
        data[i] = (unsigned short)(0x3f80 | bits >> 25);
    }
    __asm__ volatile("" : : "r"(&shape), "r"(data) : "memory"); /* GCC takes eight bytes of them for read */
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, more, 64);
    _tile_loadd(6, data, 64);
    _tile_loadd(7, more, 64);
    for (long i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}
#else
static int granted(void) { return 0; }
static void matrix_loop(long n) { (void)n; }
#endif

#define MOST 8
struct arrays { float *sum; const float *source[MOST]; };

/* One loop for each number of sources, so that the compiler sees it. */
#define SUM_0(i) 0.5f
#define SUM_1(i) b[0][i]
#define SUM_2(i) b[0][i] + 0.5f * b[1][i]
#define SUM_3(i) SUM_2(i) + b[2][i]
#define SUM_4(i) SUM_3(i) + b[3][i]
#define SUM_5(i) SUM_4(i) + b[4][i]
#define SUM_6(i) SUM_5(i) + b[5][i]
#define SUM_7(i) SUM_6(i) + b[6][i]
#define SUM_8(i) SUM_7(i) + b[7][i]
#define COUNTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#define STREAM(count)                                                       \
    case count:                                                             \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] = SUM_##count(i); \
        break;

static void stream_loop(const struct arrays *arrays, size_t n, long passes) {
    float *a = arrays->sum;
    const float *const *b = arrays->source;
    for (long p = 0; p < passes; p++) {
        switch (sources) { COUNTS(STREAM) }
        __asm__ volatile("" : : "r"(a) : "memory"); /* every pass is wanted */
    }
}

static float read_loop(const float *b, size_t n, long passes) {
    vec sums[8] = {{0}};
    for (long p = 0; p < passes; p++) {
        for (size_t i = 0; i + 8 * LANES <= n; i += 8 * LANES) {
            for (int k = 0; k < 8; k++) sums[k] += *(const vec *)(b + i + k * LANES);
        }
        __asm__ volatile("" : : "r"(b) : "memory");
    }
    float total = 0.0f;
    for (int k = 0; k < 8; k++) total += sums[k][0];
    return total;
}

struct worker { pthread_t thread; double seconds; float sink; struct arrays arrays; };

static size_t elements(void) { return bytes / sizeof(float) / (size_t)(sources < 0 ? 1 : sources + 1); }

static void *work(void *argument) {
    struct worker *w = argument;
    pthread_barrier_wait(&barrier);
    double started = now();
    if (kind == 0) w->sink = fma_loop(steps);
    else if (kind == 2) matrix_loop(steps);
    else if (kind == 3) w->sink = clock_loop(steps);
    else if (kind == 4) w->sink = latency_loop(steps);
    else if (sources < 0) w->sink = read_loop(w->arrays.sum, elements(), steps);
    else stream_loop(&w->arrays, elements(), steps);
    w->seconds = now() - started;
    return NULL;
}

static double round_seconds(struct worker *workers, int threads) {
    double slowest = 0.0;
    for (int t = 0; t < threads; t++) {
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0) exit(3);
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        if (workers[t].seconds > slowest) slowest = workers[t].seconds;
    }
    return slowest;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The best of rounds of a tenth of a millisecond, so short that the clock stays as it is; one thread is the caller's own, on
 * the core where it will go on. */
double halotile_pulse(int threads, double seconds) {
    struct worker workers[64];
    double best = 0.0;
    if (threads < 1 || threads > 64) return 0.0;
    kind = 0;
    steps = 30000;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (double end = now() + seconds; best == 0.0 || now() < end;) {
        double taken;
        if (threads == 1) {
            work(workers);
            taken = workers->seconds;
        } else taken = round_seconds(workers, threads);
        double rate = 2.0 * LANES * CHAINS * (double)steps * threads / taken;
        if (rate > best) best = rate;
        steps = taken > 2e-4 ? steps / 2 + 1 : taken < 5e-5 ? steps * 2 : steps;
    }
    pthread_barrier_destroy(&barrier);
    return best;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    static const char *const kinds[] = {"fma", "stream", "matrix", "clock", "latency"};
    for (kind = 4; kind > 0 && strcmp(argv[1], kinds[kind]) != 0; kind--) {}
    int threads = atoi(argv[2]);
    double seconds = atof(argv[3]);
    bytes = argc > 4 ? (size_t)atoll(argv[4]) : 0;
    sources = argc > 5 ? atoi(argv[5]) : 2;
    if (threads < 1 || sources < -1 || sources > MOST || (kind == 1 && bytes < 4096)) return 2;
    if (kind == 2 && !granted()) {
        puts("0");
        return 0;
    }
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    if (workers == NULL) return 3;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; kind == 1 && t < threads; t++) {
        for (int k = 0; k <= (sources > 0 ? sources : 0); k++) {
            float *array;
            if (posix_memalign((void **)&array, 64, elements() * sizeof(float) + 64) != 0) return 3;
            for (size_t i = 0; i < elements(); i++) array[i] = (float)(i & 7);
            if (k == 0) workers[t].arrays.sum = array;
            else workers[t].arrays.source[k - 1] = array;
        }
    }
    /* Rounds of some milliseconds, so that many fall between other processes' turns even on a busy machine. The first only
     * touches the memory. */
    round_seconds(workers, threads);
    for (steps = 1; round_seconds(workers, threads) < 3e-3; steps *= 2) {}
    const double a_step[] = {2.0 * LANES * CHAINS, (double)(bytes / 64 * 64), TILES * TILE_FLOPS, ADDITIONS, WAITING};
    double once = a_step[kind];
    double each = once * (double)steps;
    static double rates[4096];
    int count = 0;
    for (double end = now() + seconds; count < 4096 && (count == 0 || now() < end);) {
        rates[count++] = each * threads / round_seconds(workers, threads);
    }
    qsort(rates, (size_t)count, sizeof *rates, ascending);
    printf("%.6e\n", rates[(count - 1) * 3 / 4]);
    return workers[0].sink == 12345.0f;
}
