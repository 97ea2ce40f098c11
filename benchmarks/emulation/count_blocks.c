/* A plugin of QEMU's user emulation: how often each block of instructions ran, and what two levels of cache missed.
 *
 *   qemu-aarch64 -plugin count_blocks.so,out=FILE[,l1=BYTES,l1_ways=N,l2=BYTES,l2_ways=N] PROGRAM
 *
 * The program marks what is counted by calls of getppid: the first begins it, the second ends it, and so on; without a
 * mark all is counted. FILE has a line for each block: its address, how often it ran, the lines that it missed in the
 * first and in the second level, and its instructions in hexadecimal; then the marks, and the maps of files in memory.
 * Caches are simulated where l1 is given: least recently used, filled by reads and writes, without prefetching, and
 * warm from what ran before the mark. One thread.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of the plugins' interface (version 1). */
typedef uint64_t plugin_id;
struct tb;
struct insn;
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int flags, int rw,
                                      void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct tb *);
uint64_t qemu_plugin_tb_vaddr(const struct tb *);
struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
const void *qemu_plugin_insn_data(const struct insn *);
void *qemu_plugin_insn_haddr(const struct insn *);
unsigned qemu_plugin_mem_size_shift(uint32_t);

enum { GETPPID = 173, WORD = 4, SLOTS = 1 << 16, BOTH = 3 };

typedef struct block {
    struct block *next, *same;
    uint64_t address, runs, missed[2];
    uint32_t size;
    unsigned char *code;
} block;

typedef struct {
    uint64_t *lines, *used;
    uint64_t sets;
    unsigned ways;
} cache;

static block *blocks, *slots[SLOTS];
static cache levels[2];
static uint64_t now, shift;
static unsigned marks;
static bool counting = true;
static char *out;

static void make(cache *c, uint64_t bytes, unsigned ways) {
    c->ways = ways;
    c->sets = bytes / 64 / ways;
    c->lines = malloc(c->sets * ways * sizeof *c->lines);
    c->used = calloc(c->sets * ways, sizeof *c->used);
    memset(c->lines, 0xff, c->sets * ways * sizeof *c->lines);
}

static bool hits(cache *c, uint64_t line) {
    uint64_t *lines = c->lines + line % c->sets * c->ways, *used = c->used + line % c->sets * c->ways;
    unsigned oldest = 0;
    for (unsigned i = 0; i < c->ways; ++i) {
        if (lines[i] == line) {
            used[i] = ++now;
            return true;
        }
        if (used[i] < used[oldest]) {
            oldest = i;
        }
    }
    lines[oldest] = line;
    used[oldest] = ++now;
    return false;
}

static void on_memory(unsigned cpu, uint32_t info, uint64_t address, void *data) {
    (void)cpu;
    block *b = data;
    uint64_t last = (address + (1ull << qemu_plugin_mem_size_shift(info)) - 1) >> 6;
    for (uint64_t line = address >> 6; line <= last; ++line) {
        if (!hits(&levels[0], line)) {
            b->missed[0] += counting;
            if (!hits(&levels[1], line)) {
                b->missed[1] += counting;
            }
        }
    }
}

static void on_run(unsigned cpu, void *data) {
    (void)cpu;
    ((block *)data)->runs += counting;
}

static block *find(uint64_t address, const unsigned char *code, uint32_t size) {
    block **slot = &slots[address / WORD % SLOTS];
    for (block *b = *slot; b; b = b->same) {
        if (b->address == address && b->size == size && !memcmp(b->code, code, size)) {
            return b;
        }
    }
    block *b = calloc(1, sizeof *b);
    *b = (block){.next = blocks, .same = *slot, .address = address, .size = size, .code = malloc(size)};
    memcpy(b->code, code, size);
    blocks = *slot = b;
    return b;
}

static void on_translation(plugin_id id, struct tb *tb) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(tb);
    unsigned char *code = malloc(count * WORD);
    for (size_t i = 0; i < count; ++i) {
        memcpy(code + i * WORD, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), WORD);
    }
    uint64_t address = qemu_plugin_tb_vaddr(tb);
    shift = (uint64_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0)) - address;
    block *b = find(address, code, (uint32_t)(count * WORD));
    free(code);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_run, 0, b);
    for (size_t i = 0; levels[0].sets && i < count; ++i) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_memory, 0, BOTH, b);
    }
}

static void on_call(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                    uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != GETPPID) {
        return;
    }
    if (!marks++) {
        for (block *known = blocks; known; known = known->next) {
            known->runs = known->missed[0] = known->missed[1] = 0;
        }
    }
    counting = marks & 1;
}

static void on_exit_(plugin_id id, void *data) {
    (void)id, (void)data;
    FILE *file = fopen(out, "w");
    if (!file) {
        perror(out);
        return;
    }
    for (block *b = blocks; b; b = b->next) {
        if (b->runs) {
            fprintf(file, "block %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " ", b->address, b->runs, b->missed[0],
                    b->missed[1]);
            for (uint32_t i = 0; i < b->size; ++i) {
                fprintf(file, "%02x", b->code[i]);
            }
            fputc('\n', file);
        }
    }
    fprintf(file, "marks %u\nshift %" PRIx64 "\n", marks, shift);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '/')) {
            fprintf(file, "map %s", line);
        }
    }
    fprintf(file, "end\n");
    fclose(file);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count,
                                                               char **words) {
    (void)info;
    uint64_t bytes[2] = {0, 0}, ways[2] = {4, 8};
    for (int i = 0; i < count; ++i) {
        char *value = strchr(words[i], '=');
        if (!value) {
            return 1;
        }
        *value++ = 0;
        for (int level = 0; level < 2; ++level) {
            char size[] = "l1", way[] = "l1_ways";
            size[1] = way[1] = (char)('1' + level);
            if (!strcmp(words[i], size)) {
                bytes[level] = strtoull(value, NULL, 10);
            } else if (!strcmp(words[i], way)) {
                ways[level] = strtoull(value, NULL, 10);
            }
        }
        if (!strcmp(words[i], "out")) {
            out = strdup(value);
        }
    }
    if (!out) {
        return 1;
    }
    for (int level = 0; bytes[0] && level < 2; ++level) {
        make(&levels[level], bytes[level], (unsigned)ways[level]);
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
    return 0;
}
