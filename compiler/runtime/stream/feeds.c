/* What a step is told of rows: which exist, and where those are that are read in the place of others. */
#include <string.h>

#include "stream.h"

int64_t halotile_height_at(const struct halotile_height *height, int64_t rows) {
    if (rows == HALOTILE_NO_HEIGHT) {
        return rows;
    }
    return height->steps * (rows / height->period) + height->rest[rows % height->period];
}

static int64_t within(int64_t number, int64_t low, int64_t high) {
    return number < low ? low : number > high ? high : number;
}

/* The row of the source that row y is. */
static int64_t gathered(const struct halotile_feed *feed, int64_t y, int64_t height, int64_t source) {
    y = within(y, 0, height - 1);
    int64_t last = height - 1 - y;
    if (y < feed->tops) {
        return within(feed->top[y], 0, source - 1);
    }
    return within(last < feed->bottoms ? source - feed->bottom[last] : y + feed->shift, 0, source - 1);
}

static void fill_gather(const struct halotile_feed *feed, int64_t *out, int64_t step, int64_t first, int64_t rows) {
    int64_t height = halotile_height_at(&feed->height, rows), source = halotile_height_at(&feed->source, rows);
    int64_t start = step * feed->window_count - feed->window_back;
    for (int64_t i = 0; i < feed->length; ++i) {
        out[i] = within(gathered(feed, first + i, height, source) - start, 0, feed->window_length - 1);
    }
}

static void fill_share(const struct halotile_feed *feed, unsigned char *out, int64_t first, int64_t height) {
    for (int64_t i = 0; i < feed->length; ++i) {
        int64_t at = (first + i) * feed->stride - feed->before, there = 0;
        for (int64_t k = 0; k < feed->kernel; ++k, at += feed->dilation) {
            there += at >= 0 && at < height;
        }
        size_t entry = there > 1 ? (size_t)(there - 1) : 0;
        memcpy(out + (size_t)i * feed->element, feed->shares + entry * feed->element, feed->element);
    }
}

void halotile_feed_fill(const struct halotile_feed *feed, void *out, int64_t step, int64_t rows) {
    int64_t first = step * feed->count - feed->back, height = halotile_height_at(&feed->height, rows);
    if (feed->kind == HALOTILE_GATHER) {
        fill_gather(feed, out, step, first, rows);
    } else if (feed->kind == HALOTILE_SHARE) {
        fill_share(feed, out, first, height);
    } else if (feed->kind == HALOTILE_MASK) {
        for (int64_t i = 0; i < feed->length; ++i) {
            ((unsigned char *)out)[i] = first + i >= 0 && first + i < height;
        }
    } else {
        int64_t end = first + feed->length < height ? first + feed->length : height, low = first > 0 ? first : 0;
        *(float *)out = (float)(1.0 / (double)(end > low + 1 ? end - low : 1));
    }
}
