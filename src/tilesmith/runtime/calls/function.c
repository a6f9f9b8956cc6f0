/* The type ``Function``: machine code that takes packed arguments and a number of threads. */

#include "exchange.h"

#include <pthread.h>
#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Code code;
} Function;

/* A fork has none of the threads of its parent, and libgomp would wait for them for ever. */
static volatile int has_used_threads, is_without_threads;

static void begin_fork(void) { is_without_threads |= has_used_threads; }

long long threads_to_use(long long asked) {
    if (asked <= 1) return asked;
    has_used_threads = 1;
    return is_without_threads ? 1 : asked;
}

static PyObject *function_call(PyObject *object, PyObject *const *args, size_t flags,
                               PyObject *keywords) {
    Code code = ((Function *)object)->code;
    if (PyVectorcall_NARGS(flags) != 2 || keywords || !PyBytes_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "expected bytes and a number of threads");
        return NULL;
    }
    long long num_threads = PyLong_AsLongLong(args[1]);
    if (num_threads == -1 && PyErr_Occurred()) return NULL;
    const char *arguments = PyBytes_AS_STRING(args[0]); /* the caller holds them */
    Py_BEGIN_ALLOW_THREADS
    code(arguments, threads_to_use(num_threads));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *function_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(keywords)) {
    static int is_watching;
    unsigned long long address;
    if (!PyArg_ParseTuple(given, "K", &address)) return NULL;
    if (!is_watching) is_watching = pthread_atfork(NULL, NULL, begin_fork) == 0;
    Function *self = (Function *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->call = function_call;
    self->code = (Code)(uintptr_t)address;
    return (PyObject *)self;
}

PyTypeObject function_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tensor_reader.Function",
    .tp_doc = "Function(address): calls code there with bytes and an integer, without the GIL.",
    .tp_basicsize = sizeof(Function),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = function_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Function, call),
};
