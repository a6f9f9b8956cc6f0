/* The type ``Layout``: reads addresses, sizes and strides of tensors, for a kernel's parameters. */

#include "exchange.h"

#include <string.h>

enum { MOST_HAVE_FEWER = 64 };

typedef enum { ADDRESS, SIZE, STRIDE, NUM_FIELDS } Field;

typedef struct {
    Py_ssize_t tensor;
    int field, axis;
} Entry;

typedef struct {
    PyObject_VAR_HEAD
    Py_ssize_t num_tensors;
    uintptr_t owner; /* the kernel whose readings it may use; 0: none */
    Entry entries[];
} Layout;

/* Tensors of fake mode and under transforms of torch.func have sizes, but no memory of their own:
   compiled code would write to address 0. */
static int refuse_no_memory(void) {
    PyErr_SetString(PyExc_ValueError, "a tensor has elements, but no memory");
    return -1;
}

static int refuse_negated(void) {
    PyErr_SetString(PyExc_ValueError, "the sign of a tensor is flipped lazily");
    return -1;
}

static int check_is_empty(PyObject *object) {
    PyObject *count = PyObject_CallMethod(object, "numel", NULL);
    if (count == NULL) return -1;
    int has_some = PyObject_IsTrue(count);
    Py_DECREF(count);
    return has_some > 0 ? refuse_no_memory() : has_some;
}

/* What DLPack has no name for (types of raw bits, classes of users) is asked in torch's way. */
static int ask(PyObject *object, const Entry *entry, uint64_t *value) {
    PyObject *number;
    if (entry->field == ADDRESS && ask_is_negated(object)) return refuse_negated();
    if (entry->field == ADDRESS)
        number = PyObject_CallMethod(object, "data_ptr", NULL);
    else
        number = PyObject_CallMethod(object, entry->field == SIZE ? "size" : "stride", "i",
                                     entry->axis);
    if (number == NULL) return -1;
    if (entry->field == ADDRESS)
        *value = PyLong_AsUnsignedLongLong(number);
    else
        *value = (uint64_t)PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred()) return -1;
    return entry->field == ADDRESS && *value == 0 ? check_is_empty(object) : 0;
}

static int has_elements(const Tensor *tensor) {
    for (int32_t i = 0; i < tensor->num_axes; i++)
        if (tensor->sizes[i] == 0) return 0;
    return 1;
}

static int look_up(const Entry *entry, PyObject *object, const Tensor *tensor, uint64_t *value) {
    if (tensor->num_axes < 0) return ask(object, entry, value);
    if (entry->field == ADDRESS) {
        *value = address_of(tensor);
        return *value == 0 && has_elements(tensor) ? refuse_no_memory() : 0;
    }
    if (entry->axis >= tensor->num_axes) {
        PyErr_Format(PyExc_IndexError, "a tensor of %d axes has no axis %d", (int)tensor->num_axes,
                     entry->axis);
        return -1;
    }
    *value = (uint64_t)(entry->field == SIZE ? tensor->sizes : tensor->strides)[entry->axis];
    return 0;
}

/* Takes the values one after the other; not 0 with an exception where it cannot. */
typedef int (*Taker)(void *into, Py_ssize_t index, const Entry *entry, uint64_t value);

static int take_all(const Layout *self, PyObject *const *objects, const Tensor *tensors,
                    Taker take, void *into) {
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const Entry *entry = &self->entries[i];
        uint64_t value;
        if (look_up(entry, objects[entry->tensor], &tensors[entry->tensor], &value)) return -1;
        if (take(into, i, entry, value)) return -1;
    }
    return 0;
}

/* What was read when the call was recognised serves one launch, and only the kernel's own. */
static const Reading *take_reading(const Layout *self) {
    const Reading *reading = latest_reading;
    if (reading == NULL || reading->owner != self->owner) return NULL;
    latest_reading = NULL;
    return reading;
}

static const Tensor *find_known(const Reading *reading, PyObject *object) {
    for (Py_ssize_t i = 0; i < reading->count; i++)
        if (reading->objects[i] == object) return is_tensor(object) ? &reading->tensors[i] : NULL;
    return NULL;
}

static int read_and_take(const Layout *self, PyObject *const *objects, Py_ssize_t count,
                         Taker take, void *into) {
    Tensor few[MOST_HAVE_FEWER];
    if (count != self->num_tensors) {
        PyErr_Format(PyExc_TypeError, "expected %zd tensors, got %zd", self->num_tensors, count);
        return -1;
    }
    Tensor *tensors = count <= MOST_HAVE_FEWER ? few : PyMem_Malloc((size_t)count * sizeof(Tensor));
    if (tensors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    const Reading *reading = take_reading(self);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Tensor *known = reading ? find_known(reading, objects[i]) : NULL;
        if (known != NULL) {
            tensors[i] = *known;
        } else if (!is_tensor(objects[i]) || read_tensor(objects[i], &tensors[i])) {
            PyErr_Clear();
            tensors[i].num_axes = -1;
        }
    }
    int failed = take_all(self, objects, tensors, take, into);
    if (tensors != few) PyMem_Free(tensors);
    return failed;
}

typedef struct {
    PyObject *tuple;
    uint64_t all;
} Numbers;

static int take_number(void *into, Py_ssize_t index, const Entry *entry, uint64_t value) {
    Numbers *numbers = into;
    PyObject *number;
    if (entry->field == ADDRESS) {
        numbers->all |= value;
        number = PyLong_FromUnsignedLongLong(value);
    } else {
        number = PyLong_FromLongLong((long long)value);
    }
    if (number == NULL) return -1;
    PyTuple_SET_ITEM(numbers->tuple, index + 1, number);
    return 0;
}

static PyObject *layout_values(Layout *self, PyObject *const *objects, Py_ssize_t count) {
    Numbers numbers = {PyTuple_New(Py_SIZE(self) + 1), 0};
    if (numbers.tuple == NULL) return NULL;
    if (read_and_take(self, objects, count, take_number, &numbers)) {
        Py_DECREF(numbers.tuple);
        return NULL;
    }
    PyObject *low = PyLong_FromLong((long)(numbers.all & 15)); /* small numbers always exist */
    PyTuple_SET_ITEM(numbers.tuple, 0, low);
    return numbers.tuple;
}

static int take_bytes(void *into, Py_ssize_t index, const Entry *Py_UNUSED(entry), uint64_t value) {
    memcpy((char *)into + index * (Py_ssize_t)sizeof(value), &value, sizeof(value));
    return 0;
}

static PyObject *layout_packed(Layout *self, PyObject *const *objects, Py_ssize_t count) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, Py_SIZE(self) * (Py_ssize_t)sizeof(uint64_t));
    if (bytes == NULL) return NULL;
    if (read_and_take(self, objects, count, take_bytes, PyBytes_AS_STRING(bytes))) {
        Py_DECREF(bytes);
        return NULL;
    }
    return bytes;
}

static int parse_entry(PyObject *item, Entry *entry, Py_ssize_t num_tensors) {
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "an entry is a tuple: tensor, field, axis");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "nii", &entry->tensor, &entry->field, &entry->axis)) return -1;
    if (entry->tensor < 0 || entry->tensor >= num_tensors || entry->field < 0 ||
        entry->field >= NUM_FIELDS || entry->axis < 0) {
        PyErr_SetString(PyExc_ValueError, "no such tensor, field or axis");
        return -1;
    }
    return 0;
}

static PyObject *layout_new(PyTypeObject *type, PyObject *given, PyObject *Py_UNUSED(keywords)) {
    PyObject *entries;
    Py_ssize_t num_tensors;
    unsigned long long owner = 0;
    if (!PyArg_ParseTuple(given, "nO!|K", &num_tensors, &PyTuple_Type, &entries, &owner))
        return NULL;
    Layout *self = (Layout *)type->tp_alloc(type, PyTuple_GET_SIZE(entries));
    if (self == NULL) return NULL;
    self->num_tensors = num_tensors;
    self->owner = (uintptr_t)owner;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++)
        if (parse_entry(PyTuple_GET_ITEM(entries, i), &self->entries[i], num_tensors)) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static PyMethodDef layout_methods[] = {
    {"values", (PyCFunction)(void (*)(void))layout_values, METH_FASTCALL,
     "values(*tensors): the lowest four bits of all addresses, or-ed, then each entry's value.\n"
     "ValueError where a tensor has elements, but no memory."},
    {"packed", (PyCFunction)(void (*)(void))layout_packed, METH_FASTCALL,
     "packed(*tensors): the entries' values as bytes, 8 for each; ValueError likewise."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject layout_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tensor_reader.Layout",
    .tp_doc = "Layout(num_tensors, entries, owner=0): what to read; an entry is (tensor, field, axis), where\n"
              "field is 0 for its address, 1 for a size, 2 for a stride.",
    .tp_basicsize = sizeof(Layout),
    .tp_itemsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = layout_new,
    .tp_methods = layout_methods,
};
