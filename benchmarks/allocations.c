/* Preloaded into a process, or linked to one before libc: one call of a function that four pointers are given to, and how
   often any thread asked the allocator or the system for memory while it ran. */
#define _GNU_SOURCE
#include "allocations.h"
#include <stddef.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *place, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_int counting;
static atomic_long asked;

static void count(void) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        atomic_fetch_add(&asked, 1);
    }
}

void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    count();
    return __libc_calloc(number, bytes);
}

void *realloc(void *place, size_t bytes) {
    count();
    return __libc_realloc(place, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **place, size_t alignment, size_t bytes) {
    count();
    *place = __libc_memalign(alignment, bytes);
    return *place == NULL ? 12 : 0;
}

void *mmap(void *at, size_t bytes, int allowed, int flags, int file, off_t from) {
    count();
    return (void *)syscall(SYS_mmap, at, bytes, allowed, flags, file, from);
}

int halotile_counted(int (*call)(void *, void *, void *, void *), void *a, void *b, void *c, void *d, long *found) {
    int code;
    atomic_store(&asked, 0);
    atomic_store(&counting, 1);
    code = call(a, b, c, d);
    atomic_store(&counting, 0);
    *found = atomic_load(&asked);
    return code;
}

static int one_piece(void *a, void *b, void *c, void *d) {
    void *volatile place = malloc(100);
    (void)a, (void)b, (void)c, (void)d;
    __libc_realloc(place, 0);
    return 0;
}

long halotile_counts(void) {
    long found = 0;
    halotile_counted(one_piece, NULL, NULL, NULL, NULL, &found);
    return found;
}
