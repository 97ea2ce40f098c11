/* The quotas of control groups, version 1 and 2, of this process and of all groups above it that it sees.
 *
 * /proc/self/cgroup says in which groups the process is, /proc/self/mountinfo where the hierarchies are mounted. A group
 * may have cpu.max ("150000 100000", microseconds in each period; version 2), or cpu.cfs_quota_us and cpu.cfs_period_us
 * (version 1). Threads beyond the quota would only be stopped in the middle of a run, all at once.
 */
#define _GNU_SOURCE
#include "quota.h"

#include <limits.h>

#ifndef __linux__

int halotile_processors_granted(void) { return INT_MAX; }

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef HALOTILE_PROC
#define HALOTILE_PROC "/proc/self"
#endif

enum { MOST_PATH = 4096 };

/* The whole number in a file of one or two; 0 where there is none ("max", -1, no file). */
static int read_numbers(const char *folder, const char *name, long long *first, long long *second) {
    char path[MOST_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    int found = second ? fscanf(file, "%lld %lld", first, second) == 2 : fscanf(file, "%lld", first) == 1;
    fclose(file);
    return found;
}

static int limit_of(const char *folder, int version) {
    long long quota = 0, period = 0;
    int found = version == 2 ? read_numbers(folder, "cpu.max", &quota, &period)
                             : read_numbers(folder, "cpu.cfs_quota_us", &quota, NULL) &&
                                   read_numbers(folder, "cpu.cfs_period_us", &period, NULL);
    if (!found || quota <= 0 || period <= 0) {
        return INT_MAX;
    }
    long long granted = (quota + period - 1) / period;
    return granted < INT_MAX ? (int)granted : INT_MAX;
}

/* The least limit of a group and of those above it, up to where the hierarchy is mounted. */
static int limit_upwards(const char *place, const char *root, const char *group, int version) {
    char folder[MOST_PATH];
    size_t length = strlen(root), base = strlen(place);
    const char *inside = group;
    if (length > 1 && !strncmp(group, root, length) && (group[length] == '/' || !group[length])) {
        inside = group + length;
    }
    if (strstr(inside, "/..") || base + strlen(inside) >= sizeof folder) { /* outside of what the process sees */
        inside = "";
    }
    if (snprintf(folder, sizeof folder, "%s%s", place, inside) >= (int)sizeof folder) {
        return INT_MAX;
    }
    int least = INT_MAX;
    for (;;) {
        int limit = limit_of(folder, version);
        least = limit < least ? limit : least;
        char *last = strrchr(folder, '/');
        if (!last || (size_t)(last - folder) < base) {
            return least;
        }
        *last = 0;
    }
}

static int has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length) {
        if ((at == words || at[-1] == ',') && (!at[length] || at[length] == ',')) {
            return 1;
        }
    }
    return 0;
}

/* The group of this process in the hierarchy of a version, for free(); NULL where it is in none. */
static char *own_group(int version) {
    FILE *file = fopen(HALOTILE_PROC "/cgroup", "re");
    char *line = NULL, *found = NULL;
    size_t room = 0;
    while (file && !found && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (path) {
            *path++ = 0;
            ++controllers;
            if (version == 2 ? !*controllers : has_word(controllers, "cpu")) {
                found = strdup(path);
            }
        }
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return found;
}

static int limit_of_mount(char *line, char *const groups[]) {
    char *rest = NULL, *fields[5], *system = strstr(line, " - ");
    if (!system) {
        return INT_MAX;
    }
    *system = 0;
    system += 3;
    for (int i = 0; i < 5; ++i) {
        fields[i] = strtok_r(i ? NULL : line, " ", &rest);
        if (!fields[i]) {
            return INT_MAX;
        }
    }
    char *options = strrchr(system, ' ');
    int version = !strncmp(system, "cgroup2 ", 8) ? 2 : !strncmp(system, "cgroup ", 7) ? 1 : 0;
    if (!version || !groups[version - 1] || (version == 1 && !(options && has_word(options + 1, "cpu")))) {
        return INT_MAX;
    }
    return limit_upwards(fields[4], fields[3], groups[version - 1], version);
}

int halotile_processors_granted(void) {
    char *groups[2] = {own_group(1), own_group(2)};
    char *line = NULL;
    size_t room = 0;
    int least = INT_MAX;
    FILE *file = groups[0] || groups[1] ? fopen(HALOTILE_PROC "/mountinfo", "re") : NULL;
    while (file && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        int limit = limit_of_mount(line, groups);
        least = limit < least ? limit : least;
    }
    if (file) {
        fclose(file);
    }
    free(line);
    free(groups[0]);
    free(groups[1]);
    return least;
}

#endif
