/* How many processors a container grants this process. */
#ifndef HALOTILE_QUOTA_H
#define HALOTILE_QUOTA_H

/* Rounded up, at least 1; INT_MAX without a limit. Reads files: for create, not for runs. */
int halotile_processors_granted(void);

#endif
