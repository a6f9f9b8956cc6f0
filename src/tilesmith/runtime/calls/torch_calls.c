/* Functions of torch's own libraries, in the place of Python's ways to them, which take longer than
   what they do. Python finds them, in versions of torch that were tried; without them all else works. */

#include "exchange.h"

TorchCalls torch_calls;

static PyObject *threads_question, *gradients_question;

int ask_torch(PyObject *question) {
    if (torch_calls.are_gradients_kept && question == gradients_question)
        return torch_calls.are_gradients_kept() != 0;
    return -1;
}

long long count_torch_threads(PyObject *question) {
    return torch_calls.count_threads && question == threads_question ? torch_calls.count_threads()
                                                                     : -1;
}

/* Modes of Python see what functions make, and torch may fill what is not initialised. */
int can_make_quickly(void) {
    return torch_calls.make && !torch_calls.has_function_modes() &&
           !torch_calls.is_deterministic(torch_calls.find_context());
}

PyObject *make_quickly(const QuickMaker *maker, void **data) {
    void *handle;
    if (torch_calls.make(maker->num_axes, maker->extents, maker->extents + maker->num_axes,
                         maker->type, 0, -1, &handle))
        return NULL;
    PyObject *made = torch_calls.find_data(handle, data) ? NULL : torch_calls.wrap(handle);
    torch_calls.forget(handle);
    return made;
}

PyObject *use_torch(PyObject *Py_UNUSED(module), PyObject *given) {
    unsigned long long to[9];
    PyObject *threads, *gradients;
    if (!PyArg_ParseTuple(given, "(KKKKKKKKK)OO", &to[0], &to[1], &to[2], &to[3], &to[4], &to[5],
                          &to[6], &to[7], &to[8], &threads, &gradients))
        return NULL;
    torch_calls = (TorchCalls){
        (void *)(uintptr_t)to[0], (void *)(uintptr_t)to[1], (void *)(uintptr_t)to[2],
        (void *)(uintptr_t)to[3], (void *)(uintptr_t)to[4], (void *)(uintptr_t)to[5],
        (void *)(uintptr_t)to[6], (void *)(uintptr_t)to[7], (void *)(uintptr_t)to[8],
    };
    threads_question = Py_NewRef(threads); /* kept for as long as the process lives */
    gradients_question = Py_NewRef(gradients);
    Py_RETURN_NONE;
}

int parse_quick_maker(PyObject *item, QuickMaker *maker) {
    PyObject *sizes, *strides;
    int type;
    if (!PyArg_ParseTuple(item, "iO!O!n", &type, &PyTuple_Type, &sizes, &PyTuple_Type, &strides,
                          &maker->num_zeroed))
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(sizes);
    if (count > MAX_QUICK_AXES || PyTuple_GET_SIZE(strides) != count) {
        PyErr_SetString(PyExc_ValueError, "expected a stride for each of a few sizes");
        return -1;
    }
    maker->type = type;
    maker->num_axes = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        maker->extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
        maker->extents[count + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
    }
    maker->is_there = !PyErr_Occurred();
    return maker->is_there ? 0 : -1;
}

/* So that Python can try them out. */
PyObject *make_tensor(PyObject *Py_UNUSED(module), PyObject *item) {
    QuickMaker maker = {0};
    void *data;
    if (parse_quick_maker(item, &maker)) return NULL;
    PyObject *made = can_make_quickly() ? make_quickly(&maker, &data) : NULL;
    if (made == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return made == NULL ? NULL : Py_BuildValue("NK", made, (unsigned long long)(uintptr_t)data);
}
