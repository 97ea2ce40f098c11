/* The matrix unit for processors that have none: its instructions end in SIGILL there, whose handler does what they say.

   Known are LDTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILESTORED, TDPBF16PS and the four products of bytes; any other
   illegal instruction, and these in a thread that has not configured its unit, stay what they are. */

#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define REGISTERS 8
#define ROWS 16
#define ROW_BYTES 64
#define FLUSHING 0x9fc0 /* MXCSR: to the nearest, nothing trapped, numbers below the normal ones are zero */

typedef struct {
    int configured;
    int rows[REGISTERS], bytes[REGISTERS];
    uint8_t data[REGISTERS][ROWS][ROW_BYTES];
} Unit;

typedef struct {
    int operation, prefix, reg, other, second; /* register in reg, in r/m, and in vvvv */
    int in_memory, length;
    uint64_t base, index; /* of a place in memory; the index times its scale */
} Instruction;

static __thread Unit unit;
static struct sigaction before;
static atomic_ullong multiplied;

unsigned long long matrix_unit_multiplied(void) { return multiplied; }

static uint64_t general(const ucontext_t *context, int number) {
    static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)context->uc_mcontext.gregs[places[number]];
}

static int32_t word(const uint8_t *bytes) {
    int32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* What stands at the instruction pointer; 0 if it is none of the unit's. VEX of three bytes, map 0f38, W and L zero. */
static int decoded(const ucontext_t *context, Instruction *found) {
    const uint8_t *code = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP];
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) {
        return 0;
    }
    const int extended_index = (~code[1] >> 6 & 1) << 3, extended_base = (~code[1] >> 5 & 1) << 3;
    const int mode = code[4] >> 6, low = code[4] & 7;
    found->prefix = code[2] & 3;
    found->second = ~code[2] >> 3 & 15;
    found->operation = code[3];
    found->reg = code[4] >> 3 & 7;
    found->other = low;
    found->in_memory = mode != 3;
    found->length = 5;
    found->base = found->index = 0;
    if (mode == 3) {
        return 1;
    }
    int relative = 0;
    if (low == 4) {
        const int index = (code[5] >> 3 & 7) | extended_index, base = code[5] & 7;
        found->length = 6;
        found->index = index == 4 ? 0 : general(context, index) << (code[5] >> 6);
        if (base == 5 && mode == 0) {
            found->base = (uint64_t)(int64_t)word(code + 6);
            found->length += 4;
        } else {
            found->base = general(context, base | extended_base);
        }
    } else if (low == 5 && mode == 0) {
        found->base = (uint64_t)(int64_t)word(code + 5);
        found->length += 4;
        relative = 1;
    } else {
        found->base = general(context, low | extended_base);
    }
    if (mode == 1) {
        found->base += (uint64_t)(int64_t)(int8_t)code[found->length];
        found->length += 1;
    } else if (mode == 2) {
        found->base += (uint64_t)(int64_t)word(code + found->length);
        found->length += 4;
    }
    if (relative) {
        found->base += (uint64_t)(code + found->length);
    }
    return 1;
}

static void configure(const uint8_t *table) {
    memset(&unit, 0, sizeof unit);
    unit.configured = table[0] == 1;
    for (int i = 0; i < REGISTERS; ++i) {
        unit.bytes[i] = table[16 + 2 * i] | table[17 + 2 * i] << 8;
        unit.rows[i] = table[48 + i];
        if (unit.bytes[i] > ROW_BYTES || unit.rows[i] > ROWS) {
            unit.configured = 0;
        }
    }
}

static void loaded(int target, uint64_t base, uint64_t apart) {
    for (int row = 0; row < ROWS; ++row) {
        memset(unit.data[target][row], 0, ROW_BYTES);
        if (row < unit.rows[target]) {
            memcpy(unit.data[target][row], (const void *)(base + (uint64_t)row * apart), (size_t)unit.bytes[target]);
        }
    }
}

static void stored(int source, uint64_t base, uint64_t apart) {
    for (int row = 0; row < unit.rows[source]; ++row) {
        memcpy((void *)(base + (uint64_t)row * apart), unit.data[source][row], (size_t)unit.bytes[source]);
    }
}

/* Two chains of fused multiply-adds, of the first and of the second of each pair; their sum is added to what is there. */
static void multiply_halves(int sums, int a, int b) {
    for (int row = 0; row < unit.rows[sums]; ++row) {
        __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
        for (int pair = 0; pair < unit.bytes[a] / 4; ++pair) {
            const __m512i words = _mm512_loadu_si512(unit.data[b][pair]);
            const __m512i two = _mm512_set1_epi32(word(unit.data[a][row] + 4 * pair));
            const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
            first = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(two, 16)),
                                    _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)), first);
            second = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(two, high)),
                                     _mm512_castsi512_ps(_mm512_and_si512(words, high)), second);
        }
        float *total = (float *)unit.data[sums][row];
        _mm512_storeu_ps(total, _mm512_add_ps(_mm512_loadu_ps(total), _mm512_add_ps(first, second)));
    }
}

static void multiply_bytes(int sums, int a, int b, int a_signed, int b_signed) {
    for (int row = 0; row < unit.rows[sums]; ++row) {
        for (int column = 0; column < unit.bytes[sums] / 4; ++column) {
            uint32_t total = (uint32_t)word(unit.data[sums][row] + 4 * column);
            for (int i = 0; i < unit.bytes[a]; ++i) {
                const uint8_t x = unit.data[a][row][i], y = unit.data[b][i / 4][4 * column + i % 4];
                total += (uint32_t)((a_signed ? (int8_t)x : x) * (b_signed ? (int8_t)y : y));
            }
            memcpy(unit.data[sums][row] + 4 * column, &total, sizeof total);
        }
    }
}

static int done(const Instruction *i) {
    enum { NONE, P66, F3, F2 };
    if (i->operation == 0x49 && i->prefix == NONE && i->in_memory && i->reg == 0) {
        configure((const uint8_t *)(i->base + i->index));
        return unit.configured;
    }
    if (!unit.configured) {
        return 0;
    }
    if (i->operation == 0x49 && i->prefix == NONE && !i->in_memory && i->reg == 0 && i->other == 0) {
        memset(&unit, 0, sizeof unit);
    } else if (i->operation == 0x49 && i->prefix == F2 && !i->in_memory) {
        memset(unit.data[i->reg], 0, sizeof unit.data[0]);
    } else if (i->operation == 0x4b && (i->prefix == F2 || i->prefix == P66) && i->in_memory) {
        loaded(i->reg, i->base, i->index);
    } else if (i->operation == 0x4b && i->prefix == F3 && i->in_memory) {
        stored(i->reg, i->base, i->index);
    } else if (i->operation == 0x5c && i->prefix == F3 && !i->in_memory) {
        multiply_halves(i->reg, i->other, i->second);
        multiplied++;
    } else if (i->operation == 0x5e && !i->in_memory) { /* busd is 66, bssd F2, bsud F3, buud none */
        multiply_bytes(i->reg, i->other, i->second, i->prefix >= F3, i->prefix == P66 || i->prefix == F2);
        multiplied++;
    } else {
        return 0;
    }
    return 1;
}

static void emulate(int number, siginfo_t *information, void *place) {
    ucontext_t *context = place;
    Instruction found;
    const unsigned kept = _mm_getcsr();
    _mm_setcsr(FLUSHING);
    const int known = decoded(context, &found) && done(&found);
    _mm_setcsr(kept);
    if (known) {
        context->uc_mcontext.gregs[REG_RIP] += found.length;
    } else if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction) {
        before.sa_sigaction(number, information, place);
    } else {
        sigaction(number, &before, 0);
    }
}

/* Takes over SIGILL; 0 if it could. */
int matrix_unit_begin(void) {
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = emulate;
    ours.sa_flags = SA_SIGINFO;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGILL, &ours, &before);
}

int matrix_unit_end(void) { return sigaction(SIGILL, &before, 0); }
