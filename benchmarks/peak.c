/* Two limits of this machine: fused multiply-adds per second, and bytes per second of a triad.
 *
 *   peak fma THREADS SECONDS            prints FLOP/s
 *   peak triad THREADS SECONDS BYTES    prints bytes/s; BYTES is the working set of one thread (three arrays)
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

struct worker { pthread_t thread; double seconds; float sink; float *a, *b, *c; };

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

static void triad_loop(float *restrict a, const float *restrict b, const float *restrict c, size_t n, long passes) {
    for (long p = 0; p < passes; p++) {
        for (size_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
        __asm__ volatile("" : : "r"(a) : "memory"); /* every pass is wanted */
    }
}

static void *work(void *argument) {
    struct worker *w = argument;
    size_t n = bytes / (3 * sizeof(float));
    pthread_barrier_wait(&barrier);
    double started = now();
    if (kind == 0) w->sink = fma_loop(steps);
    else triad_loop(w->a, w->b, w->c, n, steps);
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
    kind = strcmp(argv[1], "fma") == 0 ? 0 : 1;
    int threads = atoi(argv[2]);
    double seconds = atof(argv[3]);
    bytes = argc > 4 ? (size_t)atoll(argv[4]) : 0;
    if (threads < 1 || (kind == 1 && bytes < 4096)) return 2;
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    if (workers == NULL) return 3;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; kind == 1 && t < threads; t++) {
        float **arrays[3] = {&workers[t].a, &workers[t].b, &workers[t].c};
        for (int k = 0; k < 3; k++) {
            if (posix_memalign((void **)arrays[k], 64, bytes / 3 + 64) != 0) return 3;
            for (size_t i = 0; i < bytes / 12; i++) (*arrays[k])[i] = (float)(i & 7);
        }
    }
    /* Rounds of some milliseconds, so that many fall between other processes' turns even on a busy machine. The first only
     * touches the memory. */
    round_seconds(workers, threads);
    for (steps = 1; round_seconds(workers, threads) < 3e-3; steps *= 2) {}
    double each = kind == 0 ? 2.0 * LANES * CHAINS * (double)steps : (double)(bytes / 12 * 12) * (double)steps;
    static double rates[4096];
    int count = 0;
    for (double end = now() + seconds; count < 4096 && (count == 0 || now() < end);) {
        rates[count++] = each * threads / round_seconds(workers, threads);
    }
    qsort(rates, (size_t)count, sizeof *rates, ascending);
    printf("%.6e\n", rates[(count - 1) * 3 / 4]);
    return workers[0].sink == 12345.0f;
}
