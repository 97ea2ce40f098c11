/* The arena's first and last byte lie against pages that may not be touched. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "rounds.h"

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[ROUNDS_OUTPUT_0_ELEMENTS];

static int check(int threads, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = ROUNDS_ARENA_BYTES(threads);
    size_t inside = (bytes + page - 1) / page * page;
    unsigned char *memory =
        mmap(NULL, inside + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *arena = memory + page + (at_end ? inside - bytes : 0);
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    int run;
    inputs[0] = x;
    outputs[0] = y;
    if (mprotect(memory, page, PROT_NONE) || mprotect(memory + page + inside, page, PROT_NONE)) {
        return 1;
    }
    if (rounds_create_in(threads, arena, bytes, &instance)) {
        return 1;
    }
    for (run = 0; run < 100; ++run) {
        if (rounds_run(instance, inputs, outputs)) {
            return 1;
        }
    }
    rounds_destroy(instance);
    munmap(memory, inside + 2 * page);
    return 0;
}

int main(void) {
    int threads;
    for (threads = 1; threads < 6; ++threads) {
        if (check(threads, 0) || check(threads, 1)) {
            return 1;
        }
    }
    printf("ok\n");
    return 0;
}
