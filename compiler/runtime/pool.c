/* The thread pool: one flag for each worker, spinning before sleeping, and taking over what nobody has begun.
 *
 * A launch gives every worker a share: tasks i, i + shares, i + 2 * shares ... of share i. The launcher raises the flag
 * of each share, runs share 0, and then takes whatever flags are still raised. A flag is taken by an exchange, so each
 * share runs once. The launch is not over before every flag says that its share is done, which is why whoever takes one
 * may read the fields beside it without a lock. A run never waits for a worker that sleeps or was never scheduled,
 * and a child that was forked between two runs, which has no workers, does all of the work itself.
 *
 * A launch is two lines that pass between two cores, each way: the flag with all that a worker must know, and the same
 * one back. With flag, launch and count of pending shares in three lines it took 0.43 us beside the work, now 0.23
 * (Granite Rapids).
 */
#define _GNU_SOURCE
#include "pool.h"

#ifndef HALOTILE_ONE_THREAD
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#endif

#include "floats.h"
#include "model.h"

/* How long to spin before sleeping. Between two launches of one run: serial kernels are rarely longer. */
#ifndef HALOTILE_SPIN_IN_RUN_NS
#define HALOTILE_SPIN_IN_RUN_NS 1000000L
#endif
/* After a run: enough for runs back to back, little for anybody else. Waking a worker takes 60 us on a virtual machine,
 * and a program in Python calls again after 70 to 100. */
#ifndef HALOTILE_SPIN_IDLE_NS
#define HALOTILE_SPIN_IDLE_NS 200000L
#endif
#define SPIN_QUIETLY_NS 20000L /* from here on offer the processor to others */
#define STACK_BYTES (1024 * 1024)

static _Thread_local struct halotile_worker *current_worker;

struct halotile_worker *halotile_current(void) { return current_worker; }

struct halotile_worker *halotile_set_current(struct halotile_worker *worker) {
    struct halotile_worker *previous = current_worker;
    current_worker = worker;
    return previous;
}

void halotile_pool_fail(struct halotile_pool *pool, unsigned code) {
    unsigned none = HALOTILE_OK;
    atomic_compare_exchange_strong(&pool->failure, &none, code);
}

static int run_tasks(struct halotile_worker *self, halotile_task task, void *closure, int first, int step, int tasks) {
    struct halotile_group group = {NULL, tasks};
    size_t used = self->workspace_used;
    int outer = self->busy;
    int failed = 0;
    self->busy = 1;
    for (int i = first; i < tasks; i += step) {
        if (task(i, &group, closure) != 0) {
            failed = 1;
            halotile_pool_fail(self->pool, HALOTILE_ERROR_KERNEL);
        }
        self->workspace_used = used; /* a task that failed midway has not freed its scratch */
    }
    self->busy = outer;
    return failed ? -1 : 0;
}

#ifdef HALOTILE_ONE_THREAD

int halotile_pool_launch(struct halotile_worker *self, halotile_task task, void *closure, int tasks) {
    return run_tasks(self, task, closure, 0, 1, tasks > 0 ? tasks : 1);
}

int halotile_pool_start(struct halotile_pool *pool) {
    return pool->threads == 1 ? HALOTILE_OK : HALOTILE_ERROR_SYSTEM;
}

void halotile_pool_finish(struct halotile_pool *pool) { (void)pool; }

#else

static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    /* Wraps on 32-bit machines; only differences below a second are used. */
    return (long)((unsigned long)time.tv_sec * 1000000000UL + (unsigned long)time.tv_nsec);
}

static long since(long start) { return (long)((unsigned long)now_ns() - (unsigned long)start); }

/* One step of a spinning wait: false when the limit has passed and sleeping is better. */
static int spin(unsigned *steps, long *start, long limit_ns) {
    halotile_relax();
    if (++*steps % 64 != 0) {
        return 1;
    }
    if (*steps == 64) {
        *start = now_ns();
        return 1;
    }
    long waited = since(*start);
    if (waited > SPIN_QUIETLY_NS) {
        sched_yield();
    }
    return waited < limit_ns;
}

static int take(struct halotile_worker *worker) {
    unsigned raised = HALOTILE_SHARE_RAISED;
    return atomic_load_explicit(&worker->share, memory_order_relaxed) == raised &&
           atomic_compare_exchange_strong_explicit(&worker->share, &raised, HALOTILE_SHARE_TAKEN, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* The share of `owner`, by whoever took it. */
static void run_share(struct halotile_worker *self, struct halotile_worker *owner) {
    run_tasks(self, owner->task, owner->closure, owner->index, owner->shares, owner->tasks);
    atomic_store(&owner->share, HALOTILE_SHARE_DONE);
    if (self->index) {
        halotile_park_wake(&self->pool->workers[0].park);
    }
}

/* Shares that no worker has begun; a thread that was just preempted then holds nobody up. */
static void run_leftovers(struct halotile_worker *self) {
    struct halotile_pool *pool = self->pool;
    for (int i = 1; i < pool->threads; ++i) {
        if (take(&pool->workers[i])) {
            run_share(self, &pool->workers[i]);
        }
    }
}

static void *work(void *argument) {
    struct halotile_worker *self = argument;
    struct halotile_pool *pool = self->pool;
    halotile_set_current(self);
    halotile_floats_set(halotile_floats_of(halotile_model.flush_denormals));
    for (;;) {
        unsigned steps = 0;
        long start = 0;
        while (!take(self)) {
            if (atomic_load_explicit(&pool->stop, memory_order_acquire)) {
                return NULL;
            }
            unsigned active = atomic_load_explicit(&pool->active, memory_order_relaxed);
            if (spin(&steps, &start, active ? HALOTILE_SPIN_IN_RUN_NS : HALOTILE_SPIN_IDLE_NS)) {
                continue;
            }
            halotile_park_announce(&self->park);
            if (atomic_load(&self->share) == HALOTILE_SHARE_RAISED || atomic_load(&pool->stop)) {
                halotile_park_cancel(&self->park);
            } else {
                halotile_park_sleep(&self->park);
            }
            steps = 0;
        }
        run_share(self, self);
        run_leftovers(self);
    }
}

/* By the launcher: until `worker` has finished its share. Others that finish wake it too. */
static void wait_for(struct halotile_pool *pool, struct halotile_worker *worker) {
    struct halotile_park *park = &pool->workers[0].park;
    unsigned steps = 0;
    long start = 0;
    while (atomic_load_explicit(&worker->share, memory_order_acquire) != HALOTILE_SHARE_DONE) {
        if (spin(&steps, &start, HALOTILE_SPIN_IN_RUN_NS)) {
            continue;
        }
        halotile_park_announce(park);
        if (atomic_load(&worker->share) != HALOTILE_SHARE_DONE) {
            halotile_park_sleep(park);
        } else {
            halotile_park_cancel(park);
        }
        steps = 0;
    }
}

int halotile_pool_launch(struct halotile_worker *self, halotile_task task, void *closure, int tasks) {
    struct halotile_pool *pool = self->pool;
    if (pool->threads == 1 || self->busy || self->alone || tasks == 1) {
        return run_tasks(self, task, closure, 0, 1, tasks > 0 ? tasks : 1);
    }
    if (tasks <= 0) {
        tasks = pool->threads;
    }
    int shares = tasks < pool->threads ? tasks : pool->threads;
    for (int i = 1; i < shares; ++i) {
        struct halotile_worker *worker = &pool->workers[i];
        worker->task = task;
        worker->closure = closure;
        worker->tasks = tasks;
        worker->shares = shares;
        atomic_store(&worker->share, HALOTILE_SHARE_RAISED);
    }
    for (int i = 1; i < shares; ++i) {
        halotile_park_wake(&pool->workers[i].park);
    }
    int result = run_tasks(self, task, closure, 0, shares, tasks);
    run_leftovers(self);
    for (int i = 1; i < shares; ++i) {
        wait_for(pool, &pool->workers[i]);
    }
    return atomic_load_explicit(&pool->failure, memory_order_relaxed) ? -1 : result;
}

static int start_thread(struct halotile_worker *worker) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return HALOTILE_ERROR_SYSTEM;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    worker->joinable = pthread_create(&worker->thread, &attributes, work, worker) == 0;
    pthread_attr_destroy(&attributes);
    return worker->joinable ? HALOTILE_OK : HALOTILE_ERROR_SYSTEM;
}

int halotile_pool_start(struct halotile_pool *pool) {
    sigset_t all;
    sigset_t before;
    int code = HALOTILE_OK;
    pool->process = getpid();
    for (int i = 0; i < pool->threads; ++i) {
        atomic_init(&pool->workers[i].share, HALOTILE_SHARE_DONE);
        halotile_park_init(&pool->workers[i].park);
    }
    /* The program's signals are for the program's threads. What a worker's own instruction raises is not blocked: a
       handler of the program would not be asked, and the process would end without a word of where. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < pool->threads && code == HALOTILE_OK; ++i) {
        code = start_thread(&pool->workers[i]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

void halotile_pool_finish(struct halotile_pool *pool) {
    if (pool->process != getpid()) {
        return;
    }
    atomic_store(&pool->stop, 1);
    for (int i = 1; i < pool->threads; ++i) {
        if (pool->workers[i].joinable) {
            halotile_park_wake(&pool->workers[i].park);
            pthread_join(pool->workers[i].thread, NULL);
        }
    }
    for (int i = 0; i < pool->threads; ++i) {
        halotile_park_finish(&pool->workers[i].park);
    }
}

#endif
