/* Waiting on one word: a pause for spinning, and a parking place for longer waits.
 *
 * The sleeper announces itself, looks again for what it waits for, and only then sleeps; the waker publishes first and
 * looks for a sleeper afterwards. Both orders are sequentially consistent, so one of the two always sees the other.
 */
#ifndef HALOTILE_PAUSE_H
#define HALOTILE_PAUSE_H

#include <stdatomic.h>

#include "system.h"

#ifndef HALOTILE_ONE_THREAD
#include <pthread.h>
#endif

#if defined(__linux__) && !defined(HALOTILE_PORTABLE_PARKING)
#define HALOTILE_FUTEX 1
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef HALOTILE_ONE_THREAD

static inline void halotile_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7)
    __asm__ __volatile__("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

struct halotile_park {
    atomic_uint asleep;
#ifndef HALOTILE_FUTEX
    pthread_mutex_t mutex;
    pthread_cond_t wake;
#endif
};

static inline void halotile_park_init(struct halotile_park *park) {
    atomic_init(&park->asleep, 0);
#ifndef HALOTILE_FUTEX
    pthread_mutex_init(&park->mutex, NULL);
    pthread_cond_init(&park->wake, NULL);
#endif
}

static inline void halotile_park_finish(struct halotile_park *park) {
#ifdef HALOTILE_FUTEX
    (void)park;
#else
    pthread_cond_destroy(&park->wake);
    pthread_mutex_destroy(&park->mutex);
#endif
}

/* Announces the sleeper; it must look once more at what it waits for before halotile_park_sleep. */
static inline void halotile_park_announce(struct halotile_park *park) { atomic_store(&park->asleep, 1); }

static inline void halotile_park_cancel(struct halotile_park *park) { atomic_store(&park->asleep, 0); }

static inline void halotile_park_sleep(struct halotile_park *park) {
#ifdef HALOTILE_FUTEX
    while (atomic_load(&park->asleep)) {
        syscall(SYS_futex, (unsigned *)&park->asleep, FUTEX_WAIT_PRIVATE, 1u, NULL, NULL, 0);
    }
#else
    pthread_mutex_lock(&park->mutex);
    while (atomic_load(&park->asleep)) {
        pthread_cond_wait(&park->wake, &park->mutex);
    }
    pthread_mutex_unlock(&park->mutex);
#endif
}

/* To be called after publishing. Costs one load when nobody sleeps. */
static inline void halotile_park_wake(struct halotile_park *park) {
    if (!atomic_load(&park->asleep)) {
        return;
    }
#ifdef HALOTILE_FUTEX
    if (atomic_exchange(&park->asleep, 0)) {
        syscall(SYS_futex, (unsigned *)&park->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
#else
    pthread_mutex_lock(&park->mutex);
    atomic_store(&park->asleep, 0);
    pthread_cond_signal(&park->wake);
    pthread_mutex_unlock(&park->mutex);
#endif
}

#else /* nobody waits */

struct halotile_park {
    int unused;
};

#endif

#endif
