/* A transfer that fails makes the run fail. */
#define _GNU_SOURCE
#include "model.h"
#include "pool.h"
#include "transfers.h"

int32_t halotile_scratchpad_checked(int code) {
    struct halotile_worker *self = halotile_current();
    if (code < 0 && self) {
        halotile_pool_fail(self->pool, HALOTILE_ERROR_TRANSFER);
    }
    return code;
}
