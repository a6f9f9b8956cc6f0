/* The module ``tensor_reader``: addresses of tensors, and the type ``Forms``. */

#include "exchange.h"

#include <string.h>

enum { DLPACK_MAJOR = 1 };

const Exchange *exchange;
PyTypeObject *tensor_types[MAX_TENSOR_TYPES];
Py_ssize_t num_tensor_types;

/* What DLPack has no name for (types of raw bits) is asked in torch's way. */
static int read_address(PyObject *object, uint64_t *address) {
    Tensor tensor;
    if (is_tensor(object) && exchange->read(object, &tensor) == 0) {
        *address = address_of(&tensor);
        return 0;
    }
    PyErr_Clear();
    PyObject *number = PyObject_CallMethod(object, "data_ptr", NULL);
    if (number == NULL) return -1;
    *address = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return *address == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *addresses(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    uint64_t all = 0;
    PyObject *result = PyTuple_New(count + 1);
    if (result == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t address;
        PyObject *number = NULL;
        if (read_address(args[i], &address) == 0) number = PyLong_FromUnsignedLongLong(address);
        if (number == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        all |= address;
        PyTuple_SET_ITEM(result, i + 1, number);
    }
    PyTuple_SET_ITEM(result, 0, PyLong_FromLong((long)(all & 15))); /* small numbers always exist */
    return result;
}

static PyObject *packed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t));
    if (result == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t address;
        if (read_address(args[i], &address)) {
            Py_DECREF(result);
            return NULL;
        }
        memcpy(PyBytes_AS_STRING(result) + i * (Py_ssize_t)sizeof(uint64_t), &address,
               sizeof(uint64_t));
    }
    return result;
}

static PyObject *use(PyObject *Py_UNUSED(module), PyObject *given) {
    PyObject *capsule, *types;
    if (!PyArg_ParseTuple(given, "OO!", &capsule, &PyTuple_Type, &types)) return NULL;
    const Exchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (found == NULL) return NULL;
    if (found->major != DLPACK_MAJOR || found->read == NULL) Py_RETURN_FALSE;
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    if (count > MAX_TENSOR_TYPES) {
        PyErr_SetString(PyExc_ValueError, "too many types");
        return NULL;
    }
    exchange = found;
    num_tensor_types = count;
    for (Py_ssize_t i = 0; i < count; i++) /* kept for as long as the process lives */
        tensor_types[i] = (PyTypeObject *)Py_NewRef(PyTuple_GET_ITEM(types, i));
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {
    {"use", use, METH_VARARGS,
     "use(capsule, types): read objects of these types by this exchange API; whether that is\n"
     "possible."},
    {"addresses", (PyCFunction)(void (*)(void))addresses, METH_FASTCALL,
     "addresses(*tensors): the lowest four bits of all of them, or-ed, then each address."},
    {"packed", (PyCFunction)(void (*)(void))packed, METH_FASTCALL,
     "packed(*tensors): their addresses as bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tensor_reader", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_tensor_reader(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (PyType_Ready(&forms_type) < 0 ||
        PyModule_AddObjectRef(module, "Forms", (PyObject *)&forms_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
