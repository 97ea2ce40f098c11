/* The floating-point state of a run: round to nearest, denormals kept or flushed as the model says, no traps, whatever
 * the program has set.
 *
 * Without it a program that flushes denormals in its main thread would get other bits from worker 0 than from the rest.
 */
#ifndef HALOTILE_FLOATS_H
#define HALOTILE_FLOATS_H

#include <stdint.h>

#if defined(__SSE__)
typedef unsigned halotile_floats;
static inline halotile_floats halotile_floats_get(void) { return __builtin_ia32_stmxcsr(); }
static inline void halotile_floats_set(halotile_floats state) { __builtin_ia32_ldmxcsr(state); }
#define HALOTILE_FLOATS_DEFAULT 0x1f80u
#define HALOTILE_FLOATS_FLUSH 0x8040u /* results, and operands */
#elif defined(__aarch64__)
typedef uint64_t halotile_floats;
static inline halotile_floats halotile_floats_get(void) {
    uint64_t state;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(state));
    return state;
}
static inline void halotile_floats_set(halotile_floats state) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(state));
}
#define HALOTILE_FLOATS_DEFAULT 0u
#define HALOTILE_FLOATS_FLUSH (1u << 24)
#elif defined(__arm__) && defined(__ARM_FP)
typedef unsigned halotile_floats;
static inline halotile_floats halotile_floats_get(void) {
    unsigned state;
    __asm__ __volatile__("vmrs %0, fpscr" : "=r"(state));
    return state;
}
static inline void halotile_floats_set(halotile_floats state) {
    __asm__ __volatile__("vmsr fpscr, %0" : : "r"(state));
}
#define HALOTILE_FLOATS_DEFAULT 0u
#define HALOTILE_FLOATS_FLUSH (1u << 24)
#else
typedef int halotile_floats;
static inline halotile_floats halotile_floats_get(void) { return 0; }
static inline void halotile_floats_set(halotile_floats state) { (void)state; }
#define HALOTILE_FLOATS_DEFAULT 0
#define HALOTILE_FLOATS_FLUSH 0
#endif

static inline halotile_floats halotile_floats_of(int flush_denormals) {
    return HALOTILE_FLOATS_DEFAULT | (flush_denormals ? HALOTILE_FLOATS_FLUSH : 0);
}

/* Sets a state and returns what was there; costs nothing where it is the same already. */
static inline halotile_floats halotile_floats_enter(halotile_floats state) {
    halotile_floats before = halotile_floats_get();
    if (before != state) {
        halotile_floats_set(state);
    }
    return before;
}

static inline void halotile_floats_leave(halotile_floats before, halotile_floats state) {
    if (before != state) {
        halotile_floats_set(before);
    }
}

#endif
