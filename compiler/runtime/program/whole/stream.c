/* A library whose images come as a whole: it does not stream. */
#include "program.h"

const char usage_of_stream[] = "";

int run_stream(int count, char **words) {
    (void)count, (void)words;
    fail(EXIT_ERROR, "%s does not stream: build it with --stream", the_model()->name);
}

void print_stream(int threads, int json) { (void)threads, (void)json; }
