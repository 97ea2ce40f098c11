/* Loads the module that lies beside this file, in a browser, a worker or Node.js.
 *
 *     import { load } from "./@NAME@.mjs";
 *     const model = await load();
 *     const outputs = model.run({ name: data, ... });     // typed arrays or arrays of numbers, by the ONNX names
 *
 * One model is one instance: its memory holds weights, arena, inputs and outputs, and a run allocates nothing. Several
 * threads load one each.
 */

/** What the model takes and gives: name, dtype, shape, elements, bytes. */
export const inputs = @INPUTS@;
export const outputs = @OUTPUTS@;

/** The model that it was compiled from, and by what. */
export const about = @ABOUT@;

const ARRAYS = {
    float64: Float64Array, float32: Float32Array, int64: BigInt64Array, uint64: BigUint64Array, int32: Int32Array,
    uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
    float16: Uint16Array, bfloat16: Uint16Array, /* their bits */
};

async function compiled(source) {
    if (source instanceof WebAssembly.Module) {
        return source;
    }
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
        return WebAssembly.compile(source);
    }
    if (typeof Response !== "undefined" && source instanceof Response) {
        return WebAssembly.compile(await source.arrayBuffer());
    }
    const url = new URL(source, import.meta.url);
    if (url.protocol === "file:") {
        const { readFile } = await import("node:fs/promises");
        return WebAssembly.compile(await readFile(url));
    }
    const response = await fetch(url);
    if (!response.ok) {
        throw new Error(`@NAME@: ${url} was not found (${response.status})`);
    }
    return WebAssembly.compile(await response.arrayBuffer());
}

/** A model that is ready to run. `source` is where the module is (a URL, bytes, a Response or a WebAssembly.Module),
 * by default @NAME@.wasm beside this file. */
export async function load(source = "@FILE@") {
    return new Model(await WebAssembly.instantiate(await compiled(source), {}));
}

class Model {
    #exports;
    #instance = 0;
    #inputs = [];
    #outputs = [];
    #pointers = 0;
    #allocated = [];

    constructor(instance) {
        this.#exports = instance.exports;
        this.#exports._initialize();
        const cell = this.#allocate(4);
        const code = this.#exports.@NAME@_create(1, cell);
        if (code !== 0) {
            throw this.#error(code);
        }
        this.#instance = new Uint32Array(this.#exports.memory.buffer, cell, 1)[0];
        this.#inputs = inputs.map((tensor) => this.#allocate(tensor.bytes));
        this.#outputs = outputs.map((tensor) => this.#allocate(tensor.bytes));
        this.#pointers = this.#allocate(4 * (inputs.length + outputs.length));
        const all = [...this.#inputs, ...this.#outputs];
        new Uint32Array(this.#exports.memory.buffer, this.#pointers, all.length).set(all);
    }

    /** The memory of input `index` or `name`, to be filled in place of giving it to `run`. Views end with a model. */
    input(which) {
        return this.#view(inputs, this.#inputs, which, "input");
    }

    /** The memory of output `index` or `name`, which the next run overwrites. */
    output(which) {
        return this.#view(outputs, this.#outputs, which, "output");
    }

    /** Computes. `given` are inputs by name; those that it lacks keep what is in their memory. Returns copies of the
     * outputs by name, or of those in `wanted`; an empty list copies none. */
    run(given = {}, wanted = outputs.map((tensor) => tensor.name)) {
        if (!this.#instance) {
            throw new Error("@NAME@: the model was closed");
        }
        for (const name of Object.keys(given)) {
            const place = this.input(name);
            if (given[name].length !== place.length) {
                const { shape } = inputs.find((tensor) => tensor.name === name);
                throw new RangeError(
                    `@NAME@: input ${name} takes ${place.length} elements (${shape.join(" x ")}), ${given[name].length} were given`,
                );
            }
            place.set(given[name]);
        }
        const after = this.#pointers + 4 * inputs.length;
        const code = this.#exports.@NAME@_run(this.#instance, this.#pointers, after);
        if (code !== 0) {
            throw this.#error(code);
        }
        return Object.fromEntries(wanted.map((name) => [name, this.output(name).slice()]));
    }

    /** Gives the memory back to the module. */
    close() {
        if (this.#instance) {
            this.#exports.@NAME@_destroy(this.#instance);
            this.#instance = 0;
            this.#allocated.forEach((place) => this.#exports.free(place));
        }
    }

    #allocate(bytes) {
        const place = this.#exports.malloc(bytes + 64);
        if (!place) {
            throw new RangeError("@NAME@: there is not enough memory for inputs and outputs");
        }
        this.#allocated.push(place);
        return (place + 63) & -64 /* of a line */;
    }

    #view(tensors, places, which, kind) {
        const index = typeof which === "number" ? which : tensors.findIndex((tensor) => tensor.name === which);
        if (!tensors[index]) {
            const known = tensors.map((tensor) => tensor.name).join(", ");
            throw new RangeError(`@NAME@: there is no ${kind} ${which} (known: ${known})`);
        }
        const { dtype, elements } = tensors[index];
        return new ARRAYS[dtype](this.#exports.memory.buffer, places[index] >>> 0, elements);
    }

    #error(code) {
        const bytes = new Uint8Array(this.#exports.memory.buffer);
        const start = this.#exports.@NAME@_error_text(code) >>> 0;
        return new Error(`@NAME@: ${new TextDecoder().decode(bytes.slice(start, bytes.indexOf(0, start)))}`);
    }
}
