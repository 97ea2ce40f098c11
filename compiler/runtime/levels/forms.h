/* Weights that a level of processors reads in another form than the file has: made when the first instance begins. */
#ifndef HALOTILE_FORMS_H
#define HALOTILE_FORMS_H

#include <stddef.h>
#include <stdint.h>

/* Fills elements of four bytes; what the numbers mean is told in compiler/codegen/forms.py. `starts` is -1 without a
 * table, `factors` NULL without a transform. */
struct halotile_step {
    int of, to;
    int64_t source, target, starts;
    int rank;
    const int64_t *dims, *strides;
    const double *factors;
};

struct halotile_form {
    size_t bytes, first, second;
    size_t count;
    const struct halotile_step *steps;
};

/* The weights of the level that is taken, where they are not in the file. */
extern const void *halotile_made;

/* One instance more reads them: the first makes them. One less: the last gives their memory back. */
int halotile_form_take(const struct halotile_form *form, const void *file);
void halotile_form_drop(const struct halotile_form *form);

#endif
