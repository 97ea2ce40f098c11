/* What a system lacks: threads of ours, in WebAssembly and on Windows. A library there computes in the thread that calls
 * it. */
#ifndef HALOTILE_SYSTEM_H
#define HALOTILE_SYSTEM_H

#if defined(__wasm__) || defined(_WIN32)
#define HALOTILE_ONE_THREAD 1
#endif

#endif
