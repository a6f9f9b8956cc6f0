/* The module ``tensor_reader``, with the types ``Forms``, ``Layout``, ``Function`` and ``FixedCall``. */

#include "exchange.h"

enum { DLPACK_MAJOR = 1 };

const Exchange *exchange;
PyTypeObject *tensor_types[MAX_TENSOR_TYPES];
Py_ssize_t num_tensor_types;
const PyGetSetDef *gradient_getter, *type_getter;
PyObject *byte_types[2];

/* The getter behind an attribute that all tensors inherit; NULL where it is no such thing. */
static const PyGetSetDef *find_getter(PyObject *type, const char *name) {
    PyObject *found = PyObject_GetAttrString(type, name);
    const PyGetSetDef *getter = NULL;
    if (found == NULL) PyErr_Clear();
    else if (Py_IS_TYPE(found, &PyGetSetDescr_Type))
        getter = ((PyGetSetDescrObject *)found)->d_getset; /* lives as long as its type */
    Py_XDECREF(found);
    return getter;
}

static PyObject *use(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *capsule, *types, *pairs = NULL;
    PyObject *signed_bytes, *bytes;
    if (!PyArg_ParseTuple(given, "OO!(OO)|O!", &capsule, &PyTuple_Type, &types, &signed_bytes, &bytes,
                          &PyTuple_Type, &pairs))
        return NULL;
    const Exchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (found == NULL) return NULL;
    if (found->major != DLPACK_MAJOR || found->read == NULL) Py_RETURN_FALSE;
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    if (count > MAX_TENSOR_TYPES) {
        PyErr_SetString(PyExc_ValueError, "too many types");
        return NULL;
    }
    exchange = found;
    sign_note = pairs ? find_sign_note(pairs) : (SignNote){0, 0, 0};
    num_tensor_types = count;
    for (Py_ssize_t i = 0; i < count; i++) /* kept for as long as the process lives */
        tensor_types[i] = (PyTypeObject *)Py_NewRef(PyTuple_GET_ITEM(types, i));
    gradient_getter = count ? find_getter(PyTuple_GET_ITEM(types, 0), "requires_grad") : NULL;
    type_getter = count ? find_getter(PyTuple_GET_ITEM(types, 0), "dtype") : NULL;
    byte_types[0] = Py_NewRef(signed_bytes);
    byte_types[1] = Py_NewRef(bytes);
    Py_RETURN_TRUE;
}

static PyObject *notes_signs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    return PyBool_FromLong(sign_note.bits != 0);
}

static PyMethodDef functions[] = {
    {"answer_calls", answer_calls, METH_VARARGS,
     "answer_calls(type, member): calls of instances run the forms that this member has, where these\n"
     "are of so many arguments; all others run ``__call__``. False if that was done before."},
    {"notes_signs", notes_signs, METH_NOARGS, "Whether signs are read off tensors themselves."},
    {"use", use, METH_VARARGS,
     "use(capsule, types, bytes, pairs=()): read objects of these types by this exchange API; whether\n"
     "that is possible. Bytes are the types of elements with 8 bits, signed and not. The pairs differ\n"
     "in their sign only: they show where views are marked."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tensor_reader", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

static int add_type(PyObject *module, const char *name, PyTypeObject *type) {
    return PyType_Ready(type) < 0 || PyModule_AddObjectRef(module, name, (PyObject *)type) < 0;
}

PyMODINIT_FUNC PyInit_tensor_reader(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (add_type(module, "Forms", &forms_type) || add_type(module, "Layout", &layout_type) ||
        add_type(module, "Function", &function_type) ||
        add_type(module, "FixedCall", &fixed_call_type)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
