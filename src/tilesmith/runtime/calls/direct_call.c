/* Calls of kernels whose arguments are recognised, without Python in between.

   A kernel is an instance of a class with ``__call__`` in Python, and stays one: torch.compile reads
   that function, subclasses may have another. The slot of the class that CPython fills for it makes
   a tuple, a dict and a frame in each call, which takes as long as recognising the arguments. */

#include "exchange.h"

#include <structmember.h>

static ternaryfunc call_in_python; /* what the slot was: it runs ``__call__`` of the class */
static Py_ssize_t place_of_forms;  /* in an instance; set by kernels as their arguments are learned */

static PyObject *call_directly(PyObject *kernel, PyObject *args, PyObject *keywords) {
    PyObject *forms = *(PyObject **)((char *)kernel + place_of_forms);
    if (forms == NULL || (keywords != NULL && PyDict_GET_SIZE(keywords) != 0) ||
        !are_forms_of(forms, PyTuple_GET_SIZE(args)))
        return call_in_python(kernel, args, keywords);
    PyObject *const *items = &PyTuple_GET_ITEM(args, 0);
    PyObject *result = NULL;
    Py_INCREF(forms); /* the kernel may forget them meanwhile */
    int has_run = run_if_recognised(forms, items, PyTuple_GET_SIZE(args), &result);
    Py_DECREF(forms);
    /* Dynamo looks at Python functions as they begin, and would trace what comes after ``__call__``. */
    return has_run ? result : call_in_python(kernel, args, keywords);
}

/* The place of a member that ``__slots__`` made; -1 for anything else. */
static Py_ssize_t find_place(PyTypeObject *type, PyObject *name) {
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    Py_ssize_t place = -1;
    if (found == NULL) return -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) &&
        PyType_IsSubtype(type, PyDescr_TYPE(found)))
        place = ((PyMemberDescrObject *)found)->d_member->offset;
    else
        PyErr_SetString(PyExc_TypeError, "no member of the class has this name");
    Py_DECREF(found);
    return place;
}

/* Once in a process: whoever gives the class another ``__call__`` later fills the slot anew. */
PyObject *answer_calls(PyObject *Py_UNUSED(module), PyObject *given) {
    PyTypeObject *type;
    PyObject *name;
    if (!PyArg_ParseTuple(given, "O!U", &PyType_Type, &type, &name)) return NULL;
    if (call_in_python != NULL) Py_RETURN_FALSE;
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || type->tp_call == NULL) {
        PyErr_SetString(PyExc_TypeError, "expected a class with __call__");
        return NULL;
    }
    Py_ssize_t place = find_place(type, name);
    if (place < 0) return NULL;
    place_of_forms = place;
    call_in_python = type->tp_call;
    type->tp_call = call_directly;
    PyType_Modified(type);
    Py_RETURN_TRUE;
}
