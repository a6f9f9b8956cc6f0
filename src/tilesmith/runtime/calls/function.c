/* The type ``Function``: machine code that takes packed arguments and a number of threads. */

#define _GNU_SOURCE
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

static long long threads_to_use(long long asked) {
    if (asked <= 1) return asked;
    has_used_threads = 1;
    return is_without_threads ? 1 : asked;
}

/* Kernels take up to 256 KiB of the stack, besides frames of theirs and of libgomp. */
enum { STACK_OF_KERNELS = 512 * 1024, STACK_OF_OTHERS = 8 << 20 };

/* Where the stack of this thread ends; 0: not looked for, 1: not known. */
static _Thread_local uintptr_t stack_end;

static uintptr_t find_stack_end(void) {
    uintptr_t found = 1;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes)) return found;
    if (!pthread_attr_getstack(&attributes, &lowest, &size)) found = (uintptr_t)lowest;
    pthread_attr_destroy(&attributes);
#endif
    return found;
}

typedef struct {
    Code code;
    const char *arguments;
    int64_t num_threads;
} Run;

static void *run_elsewhere(void *given) {
    const Run *run = given;
    run->code(run->arguments, run->num_threads);
    return NULL;
}

/* Threads may have been given stacks in which a kernel would end the process. */
void run_code(Code code, const char *arguments, long long num_threads) {
    Run run = {code, arguments, threads_to_use(num_threads)};
    if (!stack_end) stack_end = find_stack_end();
    if (stack_end == 1 || (uintptr_t)&run - stack_end >= STACK_OF_KERNELS) {
        code(arguments, run.num_threads);
        return;
    }
    pthread_attr_t attributes;
    pthread_t other;
    int failed = pthread_attr_init(&attributes);
    if (!failed) {
        failed = pthread_attr_setstacksize(&attributes, STACK_OF_OTHERS) ||
                 pthread_create(&other, &attributes, run_elsewhere, &run);
        pthread_attr_destroy(&attributes);
    }
    if (failed) run_elsewhere(&run);
    else pthread_join(other, NULL);
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
    run_code(code, arguments, num_threads);
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
