/* A pool of workers that belongs to one instance. Worker 0 is the thread that calls run. */
#ifndef HALOTILE_POOL_H
#define HALOTILE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pause.h"
#include "system.h"

#ifndef HALOTILE_ONE_THREAD
#include <pthread.h>
#include <sys/types.h>
#endif

struct halotile_group {
    void *sync_handle;
    int32_t num_task;
};

/* A share of a parallel loop, as the compiler emits it: the task's number decides its range. */
typedef int (*halotile_task)(int task, struct halotile_group *group, void *closure);

struct halotile_pool;
struct halotile_timers;

enum halotile_share { HALOTILE_SHARE_DONE = 0, HALOTILE_SHARE_RAISED = 1, HALOTILE_SHARE_TAKEN = 2 };

struct halotile_worker {
    /* This worker's share of a launch, in one line with all that describes it, which changes only while the flag is
     * HALOTILE_SHARE_DONE, and only by the launcher. */
    _Alignas(128) atomic_uint share;
    int tasks;
    halotile_task task;
    void *closure;
    int shares;
    struct halotile_park park;
    /* Of the worker alone. */
    _Alignas(128) struct halotile_pool *pool;
    int index;
    int busy; /* inside a task: a launch from here runs inline */
    int alone; /* the kernel is too small to share: the same */
#ifndef HALOTILE_ONE_THREAD
    int joinable;
    pthread_t thread;
#endif
    unsigned char *workspace; /* this worker's scratch, inside the arena */
    size_t workspace_bytes;
    size_t workspace_used;
};

_Static_assert(offsetof(struct halotile_worker, park) < 64, "a share and what describes it pass in one line");

struct halotile_pool {
    _Alignas(128) atomic_uint active; /* a run is under way: the next launch is near */
    atomic_uint stop;
    atomic_uint failure; /* first error code of this run */
    int threads;
#ifndef HALOTILE_ONE_THREAD
    pid_t process; /* that has the threads; a forked child has none of them */
#endif
    struct halotile_worker *workers;
    struct halotile_timers *timers; /* NULL unless the library was built with them */
};

/* The worker that the calling thread is, or NULL outside of a run. */
struct halotile_worker *halotile_current(void);
struct halotile_worker *halotile_set_current(struct halotile_worker *worker);

/* Starts threads - 1 threads; the workers' array and their workspaces were set by the caller. Returns an error code. */
int halotile_pool_start(struct halotile_pool *pool);
void halotile_pool_finish(struct halotile_pool *pool);

/* Runs `tasks` tasks (0: one for each worker) and returns when all are done: 0, or -1 when one failed. */
int halotile_pool_launch(struct halotile_worker *self, halotile_task task, void *closure, int tasks);

/* Of the calling thread's launches from here on, whether it runs them by itself. */
int32_t halotile_alone(int32_t alone);

void halotile_pool_fail(struct halotile_pool *pool, unsigned code);

#endif
