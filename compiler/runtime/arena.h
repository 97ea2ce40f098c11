/* Memory for an arena when the program does not bring its own: fresh pages, straight from the system. */
#ifndef HALOTILE_ARENA_H
#define HALOTILE_ARENA_H

#include <stddef.h>
#include <sys/mman.h>

/* An arena may be empty; a page of its own keeps the pointer valid. */
static inline size_t halotile_arena_mapped(size_t bytes) { return bytes ? bytes : 1; }

static inline void *halotile_arena_map(size_t bytes) {
    void *memory =
        mmap(NULL, halotile_arena_mapped(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void halotile_arena_unmap(void *memory, size_t bytes) { munmap(memory, halotile_arena_mapped(bytes)); }

#endif
