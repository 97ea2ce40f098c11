"""What C users find beside a library: an example program, a CMake snippet and a pkg-config file.

    beside_files(spec, shared, archive) -> {file name: text}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import comment
from .open_example import open_example
from .stream_example import stream_example

if TYPE_CHECKING:
    from .spec import LibrarySpec


def beside_files(spec: LibrarySpec, shared: bool, archive: bool) -> dict[str, tuple[str, str]]:
    """kind -> (file name, text); the files name only what was built."""
    name = spec.identifier
    files = {"example": ("main.c", _example(spec, shared))}
    if shared or archive:
        files["cmake"] = (f"{name}.cmake", _cmake(name, shared, archive))
        files["pkgconfig"] = (f"{name}.pc", _pkgconfig(spec, shared))
    return files


def _example(spec: LibrarySpec, shared: bool) -> str:
    name = spec.identifier
    link = f"-L. -l{name} -Wl,-rpath,'$ORIGIN'" if shared else f"lib{name}.a -pthread -lm"
    if spec.stream:
        return stream_example(spec, link)
    if spec.symbols:
        return open_example(spec, link)
    return _EXAMPLE.format(
        name=name, upper=name.upper(), link=link, text=comment(spec.name), target=comment(spec.target.id)
    )


def _cmake(name: str, shared: bool, archive: bool) -> str:
    parts = [_CMAKE_HEAD.format(name=name, targets=_cmake_targets(name, shared, archive))]
    if shared:
        parts.append(_CMAKE_SHARED.format(name=name))
    if archive:
        parts.append(_CMAKE_STATIC.format(name=name))
    return "".join(parts)


def _cmake_targets(name: str, shared: bool, archive: bool) -> str:
    found = [f"{name}::shared"] * shared + [f"{name}::static"] * archive
    return " and ".join(found)


def _pkgconfig(spec: LibrarySpec, shared: bool) -> str:
    name = spec.identifier
    libs = f"-L${{libdir}} -l{name}" if shared else f"${{libdir}}/lib{name}.a -pthread -lm"
    return _PKGCONFIG.format(name=name, version=spec.version, target=comment(spec.target.id), libs=libs)


_EXAMPLE = """/* {text}, compiled for {target}: runs the model once on inputs of one value and prints what comes out.
 *
 *     cc -O2 main.c {link} -o main && ./main
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

/* Memory for a tensor; every float32 element is one, every byte of any other type is zero. */
static void *make(const {name}_tensor *tensor) {{
    void *data = calloc(tensor->bytes ? tensor->bytes : 1, 1);
    size_t i;
    if (data && strcmp(tensor->dtype, "float32") == 0) {{
        for (i = 0; i < tensor->elements; ++i) {{
            ((float *)data)[i] = 1.0f;
        }}
    }}
    return data;
}}

static void print(const {name}_tensor *tensor, const void *data) {{
    size_t i;
    printf("%s: %s, %lu elements", tensor->name, tensor->dtype, (unsigned long)tensor->elements);
    if (strcmp(tensor->dtype, "float32") == 0) {{
        for (i = 0; i < tensor->elements && i < 8; ++i) {{
            printf("%s%.9g", i ? " " : ": ", ((const float *)data)[i]);
        }}
    }}
    printf("\\n");
}}

int main(void) {{
    const {name}_description *model = {name}_describe();
    const void *inputs[{upper}_INPUTS + 1];
    void *outputs[{upper}_OUTPUTS + 1];
    {name}_instance *instance = NULL;
    size_t i;
    int code;

    for (i = 0; i < model->input_count; ++i) {{
        if (!(inputs[i] = make(&model->inputs[i]))) {{
            return 1;
        }}
    }}
    for (i = 0; i < model->output_count; ++i) {{
        if (!(outputs[i] = make(&model->outputs[i]))) {{
            return 1;
        }}
    }}
    code = {name}_create(0, &instance); /* 0: the default number of threads */
    if (code == {upper}_OK) {{
        code = {name}_run(instance, inputs, outputs);
    }}
    if (code != {upper}_OK) {{
        fprintf(stderr, "{name}: %s\\n", {name}_error_text(code));
        return 1;
    }}
    for (i = 0; i < model->output_count; ++i) {{
        print(&model->outputs[i], outputs[i]);
    }}
    {name}_destroy(instance);
    for (i = 0; i < model->input_count; ++i) {{
        free((void *)inputs[i]);
    }}
    for (i = 0; i < model->output_count; ++i) {{
        free(outputs[i]);
    }}
    return 0;
}}
"""

_CMAKE_HEAD = """# include(this file) gives {targets}:  target_link_libraries(program PRIVATE ...)
find_package(Threads REQUIRED)
"""

_CMAKE_SHARED = """
if(NOT TARGET {name}::shared)
  add_library({name}::shared SHARED IMPORTED)
  set_target_properties({name}::shared PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.so"
    IMPORTED_SONAME "lib{name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}")
endif()
"""

_CMAKE_STATIC = """
if(NOT TARGET {name}::static)
  add_library({name}::static STATIC IMPORTED)
  set_target_properties({name}::static PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.a"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;m"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}")
endif()
"""

_PKGCONFIG = """prefix=${{pcfiledir}}
libdir=${{prefix}}
includedir=${{prefix}}

Name: {name}
Description: a model compiled by Halotile for {target}
Version: {version}
Cflags: -I${{includedir}}
Libs: {libs}
Libs.private: -pthread -lm
"""
