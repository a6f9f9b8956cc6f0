/* How tensors are read: by DLPack's C exchange API, which answers in one call what torch's Python
   API is asked for one by one (sizes, strides, type, device, address). */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The part of DLPack (major version 1) that is used; the layout is fixed by its specification. */

typedef struct {
    int32_t type, id;
} Device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} Element;

typedef struct {
    void *data;
    Device device;
    int32_t num_axes;
    Element element;
    int64_t *sizes, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    uint32_t major, minor;
    void *older;
    void *allocate, *export_tensor, *import_tensor;
    int (*read)(void *object, Tensor *tensor); /* not 0 with a Python exception where it fails */
    void *find_stream;
} Exchange;

/* Of the process; set once, before anything is read. */

enum { MAX_TENSOR_TYPES = 4 };

extern const Exchange *exchange;
extern PyTypeObject *tensor_types[MAX_TENSOR_TYPES];
extern Py_ssize_t num_tensor_types;
extern const PyGetSetDef *gradient_getter; /* of requires_grad; NULL: ask by name */
extern const PyGetSetDef *type_getter;     /* of dtype; the same */
extern PyObject *byte_types[2];            /* torch.int8 and torch.uint8, at DLPack's codes */

/* Where torch notes that the sign of a view is flipped lazily: the object holds the address of what
   it stands for, and a bit of a word there says so. No bits: ask by name. */
typedef struct {
    size_t holder, word;
    uint64_t bits;
} SignNote;

extern SignNote sign_note;
SignNote find_sign_note(PyObject *pairs); /* of objects that differ in their sign only */
int ask_is_negated(PyObject *object); /* what cannot be asked is not */

static inline uint64_t address_of(const Tensor *tensor) {
    return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

/* Whether the object may be read; subclasses of tensors decide for themselves what they are. */
static inline int is_tensor(PyObject *object) {
    for (Py_ssize_t i = 0; i < num_tensor_types; i++)
        if (Py_TYPE(object) == tensor_types[i]) return 1;
    return 0;
}

/* Whether its memory holds other values than it stands for. */
static inline int is_negated(PyObject *tensor) {
    if (!sign_note.bits) return ask_is_negated(tensor);
    const char *held = *(const char *const *)((const char *)tensor + sign_note.holder);
    return (*(const uint64_t *)(held + sign_note.word) & sign_note.bits) != 0;
}

/* Whether its elements only look like bytes: to DLPack those of torch.uint4 are of torch.uint8. */
static inline int is_of_other_type(PyObject *object, Element element) {
    if (element.bits != 8 || element.code > 1) return 0;
    PyObject *found = type_getter ? type_getter->get(object, type_getter->closure)
                                  : PyObject_GetAttrString(object, "dtype");
    Py_XDECREF(found); /* one of torch's, which live on */
    return found != byte_types[element.code];
}

/* 0, or -1: with an exception, for a negated view, for elements of which DLPack does not tell, or
   where the producer leaves out strides (older versions may). */
static inline int read_tensor(PyObject *object, Tensor *tensor) {
    if (is_negated(object) || exchange->read(object, tensor)) return -1;
    if (is_of_other_type(object, tensor->element)) return -1;
    return tensor->num_axes > 0 && (tensor->sizes == NULL || tensor->strides == NULL) ? -1 : 0;
}

/* The arguments of a call; lists, tuples, dicts and functions are each followed by what they hold. */

enum { MAX_ARGUMENTS = 64, MAX_LEAVES = 128 };

typedef struct {
    PyObject *const *args;
    Py_ssize_t num_args;
    PyObject *const *objects; /* the arguments themselves, where none is a container */
    Py_ssize_t count;
    int are_too_many;      /* the objects are not all there are, and only arguments */
    Py_ssize_t num_spread; /* how many of `spread` are in use, with a reference each */
    PyObject *spread[MAX_LEAVES];
} Leaves;

int spread_argument(Leaves *leaves, PyObject *argument); /* not 0 where there is no more room */
void spread_arguments(Leaves *leaves);

static inline int is_container(PyObject *object) {
    return PyTuple_Check(object) || PyList_CheckExact(object) || PyDict_CheckExact(object);
}

static inline Py_ssize_t num_cells(PyObject *function) {
    PyObject *closure = PyFunction_GET_CLOSURE(function);
    return closure == NULL ? 0 : PyTuple_GET_SIZE(closure);
}

static inline int holds_others(PyObject *object) {
    return is_container(object) || (PyFunction_Check(object) && num_cells(object));
}

static inline void find_leaves(Leaves *leaves, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t num_plain = 0;
    leaves->args = leaves->objects = args;
    leaves->num_args = leaves->count = count;
    leaves->num_spread = 0;
    leaves->are_too_many = count > MAX_ARGUMENTS;
    while (num_plain < count && !holds_others(args[num_plain])) num_plain++;
    if (num_plain < count && !leaves->are_too_many) spread_arguments(leaves);
}

static inline void release_leaves(Leaves *leaves) {
    while (leaves->num_spread) Py_DECREF(leaves->spread[--leaves->num_spread]);
}

/* The tensors of a call as they were recognised, for the launch that belongs to it: host code in
   between is known to leave them as they are. Of this thread, until the call returns. */
typedef struct {
    uintptr_t owner; /* the kernel whose launch it is */
    PyObject *const *args; /* of the call */
    PyObject *const *objects; /* its leaves */
    const Tensor *tensors;
    Py_ssize_t count;
} Reading;

extern _Thread_local const Reading *latest_reading;

/* Machine code of a kernel. */
typedef void (*Code)(const char *arguments, int64_t num_threads);

/* With one thread in a fork of a process that has used several. */
void run_code(Code code, const char *arguments, long long num_threads);

int are_forms_of(PyObject *object, Py_ssize_t num_args); /* whether it knows calls with so many */
int run_if_recognised(PyObject *forms, PyObject *const *args, Py_ssize_t count, PyObject **result);
PyObject *answer_calls(PyObject *module, PyObject *given);

extern PyTypeObject forms_type, layout_type, function_type, fixed_call_type;
