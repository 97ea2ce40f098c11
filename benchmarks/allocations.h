/* How often any thread asked the allocator or the system for memory during one call: see allocations.c. */
#ifndef HALOTILE_ALLOCATIONS_H
#define HALOTILE_ALLOCATIONS_H

int halotile_counted(int (*call)(void *, void *, void *, void *), void *a, void *b, void *c, void *d, long *found);

/* 1 where the counting works: of a call that asks once. */
long halotile_counts(void);

#endif
