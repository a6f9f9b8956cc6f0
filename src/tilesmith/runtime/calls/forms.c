/* The type ``Forms``: recognises the arguments of a call.

   A form is what must be the same for a compiled kernel to be used again: of tensors all sizes and
   strides, or, where these are runtime values, which of them are 0 or 1 and the width of offsets. */

#include "exchange.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

typedef enum { ANY, EQUAL, BITS, SHORT, LONG, FUNCTION, LENGTH, KEYS, TENSOR } Test;

typedef struct {
    PyTypeObject *type;
    Test test;
    PyObject *value;    /* of EQUAL; code and globals of FUNCTION; a tuple of strings of KEYS */
    double number;      /* of BITS */
    Py_ssize_t length;  /* of LENGTH and KEYS; of FUNCTION how many values it holds in cells */
    int is_item;        /* held by a container, whose key does not tell classes of tensors apart */
    int is_written; /* from here on of TENSOR */
    Device device;
    Element element;
    int32_t num_axes;
    int is_long;              /* of runtime sizes: offsets need 64 bits */
    int64_t *sizes, *strides; /* one allocation */
} Place;

/* What decides; the numbers come from those who make the keys. */
typedef struct {
    int are_sizes_fixed;
    long long low, high; /* integers between these have 32 bits in device code */
    long long max_offset; /* so have offsets up to here */
} Rules;

typedef struct {
    PyObject *result;
    Rules rules;
    int is_read_once; /* what is read here serves the launch too */
    Py_ssize_t num_places;
    Place places[];
} Form;

static void free_form(Form *form) {
    for (Py_ssize_t i = 0; i < form->num_places; i++) {
        Py_XDECREF(form->places[i].type);
        Py_XDECREF(form->places[i].value);
        PyMem_Free(form->places[i].sizes);
    }
    Py_XDECREF(form->result);
    PyMem_Free(form);
}

/* Any size is possible, none raises. */
static Test width_of(PyObject *number, const Rules *rules) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && value >= rules->low && value <= rules->high ? SHORT : LONG;
}

static int64_t fixed_part(int64_t extent, const Rules *rules) {
    return rules->are_sizes_fixed || extent == 0 || extent == 1 ? extent : 2;
}

static int is_long(const Tensor *tensor, const Rules *rules) {
    int64_t last = 0;
    if (rules->are_sizes_fixed) return 0;
    for (int32_t i = 0; i < tensor->num_axes; i++)
        if (tensor->sizes[i]) last += (tensor->sizes[i] - 1) * tensor->strides[i];
    return last > rules->max_offset;
}

/* Whether some stride does not pass all that smaller ones reach; sizes that are fixed tell it. */
static int may_overlap(const Tensor *tensor, const Rules *rules) {
    int64_t reached = 0, last = 0;
    if (rules->are_sizes_fixed) return 0;
    for (int32_t i = 0; i < tensor->num_axes; i++)
        if (tensor->sizes[i] == 0) return 0;
    for (int32_t step = 0; step < tensor->num_axes; step++) {
        int32_t next = -1, num_equal = 0;
        for (int32_t i = 0; i < tensor->num_axes; i++) {
            if (tensor->sizes[i] == 1 || (step && tensor->strides[i] <= last)) continue;
            if (next >= 0 && tensor->strides[i] == tensor->strides[next]) num_equal++;
            if (next < 0 || tensor->strides[i] < tensor->strides[next]) next = i, num_equal = 0;
        }
        if (next < 0) return 0;
        last = tensor->strides[next];
        if (num_equal || last <= reached) return 1;
        reached += last * (tensor->sizes[next] - 1);
    }
    return 0;
}

/* From the first to the last element, in bytes. */
static uint64_t extent_of(const Tensor *tensor) {
    int64_t last = 0;
    for (int32_t i = 0; i < tensor->num_axes; i++) {
        if (tensor->sizes[i] == 0) return 0;
        last += (tensor->sizes[i] - 1) * tensor->strides[i];
    }
    return (uint64_t)(last + 1) * ((tensor->element.bits * tensor->element.lanes + 7) / 8);
}

static int remember_tensor(Place *place, PyObject *object, const Rules *rules) {
    Tensor tensor;
    if (read_tensor(object, &tensor)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a tensor without strides");
        return -1;
    }
    size_t num_bytes = (size_t)tensor.num_axes * sizeof(int64_t);
    place->sizes = PyMem_Malloc(num_bytes ? 2 * num_bytes : 1);
    if (place->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    place->strides = place->sizes + tensor.num_axes;
    for (int32_t i = 0; i < tensor.num_axes; i++) {
        place->sizes[i] = fixed_part(tensor.sizes[i], rules);
        place->strides[i] = fixed_part(tensor.strides[i], rules);
    }
    place->test = TENSOR;
    place->device = tensor.device;
    place->element = tensor.element;
    place->num_axes = tensor.num_axes;
    place->is_long = is_long(&tensor, rules);
    return 0;
}

static int has_defaults(PyObject *function) {
    return PyFunction_GET_DEFAULTS(function) != NULL ||
           PyFunction_GET_KW_DEFAULTS(function) != NULL;
}

/* The function itself is not kept: what it holds may be large. */
static int remember_function(Place *place, PyObject *function) {
    PyObject *code = PyFunction_GET_CODE(function), *globals = PyFunction_GET_GLOBALS(function);
    place->test = FUNCTION;
    place->length = num_cells(function);
    place->value = has_defaults(function) ? Py_NewRef(Py_None) : PyTuple_Pack(2, code, globals);
    return place->value == NULL ? -1 : 0;
}

/* Constants count by value; of floats every bit does: 0.0 is not -0.0. */
static int remember(Place *place, PyObject *object, int is_constant, const Rules *rules) {
    place->type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    if (is_tensor(object)) return remember_tensor(place, object, rules);
    if (PyFloat_CheckExact(object)) {
        place->test = is_constant ? BITS : ANY;
        place->number = PyFloat_AS_DOUBLE(object);
        return 0;
    }
    if (PyLong_CheckExact(object) && !is_constant) {
        place->test = width_of(object, rules);
        return 0;
    }
    if (PyFunction_Check(object)) return remember_function(place, object);
    if (PyDict_CheckExact(object)) {
        place->test = KEYS;
        place->length = PyDict_GET_SIZE(object);
        place->value = PySequence_Tuple(object);
        return place->value == NULL ? -1 : 0;
    }
    if (is_container(object)) {
        place->test = LENGTH;
        place->length = PySequence_Fast_GET_SIZE(object);
        return 0;
    }
    place->test = EQUAL;
    place->value = Py_NewRef(object);
    return 0;
}

/* Whether a function is the same code over the same globals; what its cells hold comes after it. */
static int is_same_code(const Place *place, PyObject *function) {
    return place->value != Py_None && !has_defaults(function) &&
           num_cells(function) == place->length &&
           PyFunction_GET_CODE(function) == PyTuple_GET_ITEM(place->value, 0) &&
           PyFunction_GET_GLOBALS(function) == PyTuple_GET_ITEM(place->value, 1);
}

/* Whether a dict has these strings for keys, in this order; comparing strings runs no other code. */
static int has_keys(PyObject *dict, PyObject *keys) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &value); i++) {
        PyObject *known = PyTuple_GET_ITEM(keys, i);
        if (!PyUnicode_CheckExact(key) || !PyUnicode_CheckExact(known)) return 0;
        if (key != known && PyUnicode_Compare(key, known) != 0) return 0;
    }
    return 1;
}

static int fits_tensor(const Place *place, const Tensor *tensor, const Rules *rules) {
    if (place->num_axes != tensor->num_axes ||
        memcmp(&place->element, &tensor->element, sizeof(Element)) != 0 ||
        memcmp(&place->device, &tensor->device, sizeof(Device)) != 0)
        return 0;
    for (int32_t i = 0; i < place->num_axes; i++)
        if (place->sizes[i] != fixed_part(tensor->sizes[i], rules) ||
            place->strides[i] != fixed_part(tensor->strides[i], rules))
            return 0;
    if (place->is_written && may_overlap(tensor, rules)) return 0; /* looked at more closely */
    return place->is_long == is_long(tensor, rules);
}

/* 1 if it fits, 0 if not, -1 with an exception if comparing fails. */
static int fits_place(const Place *place, PyObject *object, const Tensor *tensor,
                      const Rules *rules) {
    if (Py_TYPE(object) != place->type &&
        !(place->is_item && place->test == TENSOR && is_tensor(object)))
        return 0;
    switch (place->test) {
    case ANY:
        return 1;
    case EQUAL:
        return PyObject_RichCompareBool(object, place->value, Py_EQ);
    case BITS: {
        double number = PyFloat_AS_DOUBLE(object);
        return memcmp(&number, &place->number, sizeof(number)) == 0;
    }
    case SHORT:
    case LONG:
        return width_of(object, rules) == place->test;
    case FUNCTION:
        return is_same_code(place, object);
    case LENGTH:
        return PySequence_Fast_GET_SIZE(object) == place->length;
    case KEYS:
        return PyDict_GET_SIZE(object) == place->length && has_keys(object, place->value);
    case TENSOR:
        return fits_tensor(place, tensor, rules);
    }
    return 0;
}

/* Whether no written tensor has memory in common with another argument. */
static int are_apart(const Form *form, const Tensor *tensors) {
    for (Py_ssize_t i = 0; i < form->num_places; i++) {
        if (!form->places[i].is_written) continue;
        uint64_t first = address_of(&tensors[i]), first_bytes = extent_of(&tensors[i]);
        for (Py_ssize_t j = 0; j < form->num_places; j++) {
            if (j == i || form->places[j].test != TENSOR) continue;
            uint64_t second = address_of(&tensors[j]), second_bytes = extent_of(&tensors[j]);
            if (first_bytes && second_bytes && first < second + second_bytes &&
                second < first + first_bytes)
                return 0;
        }
    }
    return 1;
}

static int fits(const Form *form, PyObject *const *leaves, const Tensor *tensors) {
    for (Py_ssize_t i = 0; i < form->num_places; i++) {
        int fitting = fits_place(&form->places[i], leaves[i], &tensors[i], &form->rules);
        if (fitting != 1) return fitting;
    }
    return are_apart(form, tensors);
}

/* Tensors under transforms of torch.func have elements, and stand for others that hold them. */
static int stands_for_another(const Tensor *tensor) {
    if (tensor->data != NULL) return 0;
    for (int32_t i = 0; i < tensor->num_axes; i++)
        if (tensor->sizes[i] == 0) return 0;
    return 1;
}

static int read_all(const Leaves *leaves, Tensor *tensors) {
    for (Py_ssize_t i = 0; i < leaves->count; i++)
        if (is_tensor(leaves->objects[i]) &&
            (read_tensor(leaves->objects[i], &tensors[i]) || stands_for_another(&tensors[i])))
            return -1;
    return 0;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *otherwise;
    PyObject *anew;         /* runs calls that are not recognised */
    PyObject *watches;      /* callables: whether torch records what happens just now */
    PyObject *slow_watches; /* likewise, of states that take torch long to enter */
    PyObject *calm;         /* dicts, keys and what these have there while nothing else happens */
    PyObject *are_recorded; /* callable: whether gradients of calculations are kept */
    PyObject *observer;     /* calls what it is given, such that a profiler sees it */
    PyObject *is_observed;  /* callable: whether a profiler looks; slow to start, like traces */
    Py_ssize_t num_args;    /* of calls that need nothing added to them; -1: not known */
    Rules rules;
    Form **forms;
    Py_ssize_t count;
    Py_ssize_t latest; /* the search begins where it ended: calls repeat, or take turns */
} Forms;

/* Borrowed, or NULL; exceptions only mean that these arguments are not for this type to judge. */
static Form *find_form(Forms *self, const Leaves *leaves, Tensor *tensors) {
    if (self->count == 0 || leaves->are_too_many) return NULL;
    int is_read = read_all(leaves, tensors) == 0;
    for (Py_ssize_t step = 0; is_read && step < self->count; step++) {
        Py_ssize_t index = (self->latest + step) % self->count;
        if (self->forms[index]->num_places != leaves->count) continue;
        int fitting = fits(self->forms[index], leaves->objects, tensors);
        if (fitting < 0) break;
        if (fitting) {
            self->latest = index;
            return self->forms[index];
        }
    }
    PyErr_Clear();
    return NULL;
}

static int is_true(PyObject *callable) {
    PyObject *answer = PyObject_CallNoArgs(callable);
    if (answer == NULL) return -1;
    int result = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return result;
}

/* Tensors answer by the getter of their own type, without looking its name up in each call. */
static int requires_grad(PyObject *tensor) {
    const PyGetSetDef *getter = gradient_getter;
    PyObject *answer = getter ? getter->get(tensor, getter->closure)
                              : PyObject_GetAttrString(tensor, "requires_grad");
    if (answer == NULL) return -1;
    int result = answer == Py_True;
    Py_DECREF(answer);
    return result;
}

static int is_any_true(PyObject *callables) {
    int is_tuple = callables != NULL && PyTuple_CheckExact(callables);
    for (Py_ssize_t i = 0; is_tuple && i < PyTuple_GET_SIZE(callables); i++) {
        int answer = is_true(PyTuple_GET_ITEM(callables, i));
        if (answer) return answer;
    }
    return 0;
}

/* Reading a name is ten times as fast as calling a function that does. */
static int is_calm(PyObject *calm) {
    if (calm == NULL || !PyTuple_CheckExact(calm)) return 1;
    for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(calm); i += 3) {
        if (!PyDict_CheckExact(PyTuple_GET_ITEM(calm, i))) continue;
        PyObject *now = PyDict_GetItem(PyTuple_GET_ITEM(calm, i), PyTuple_GET_ITEM(calm, i + 1));
        if (now != NULL && now != PyTuple_GET_ITEM(calm, i + 2)) return 0;
    }
    return 1;
}

/* A thread that has heard "no" this short a time ago gets no other answer: the Python code with
   which torch begins to trace takes several times as long. Asking costs more than a clock. */
enum { MAX_AGE_NS = 20000 };

/* What a call is beside a call: torch traces it, a profiler looks, gradients are wanted. */
typedef enum { FAILED = -1, PLAIN = 0, TRACED = 1, OBSERVED = 2, RECORDED = 4 } Kind;

static Kind ask_slowly(const Forms *self) {
    static _Thread_local int64_t last_no;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (time_ns - last_no < MAX_AGE_NS) return PLAIN;
    int traced = is_any_true(self->slow_watches);
    if (traced) return traced < 0 ? FAILED : TRACED;
    int observed = self->is_observed ? is_true(self->is_observed) : 0;
    if (observed) return observed < 0 ? FAILED : OBSERVED;
    last_no = time_ns;
    return PLAIN;
}

static Kind find_gradients(const Forms *self, const Leaves *leaves) {
    if (self->are_recorded == NULL || self->are_recorded == Py_None) return PLAIN;
    int recorded = is_true(self->are_recorded);
    if (recorded != 1) return recorded;
    for (Py_ssize_t i = 0; i < leaves->count; i++) {
        int required = is_tensor(leaves->objects[i]) ? requires_grad(leaves->objects[i]) : 0;
        if (required) return required < 0 ? FAILED : RECORDED;
    }
    return PLAIN;
}

static Kind kind_of(const Forms *self, const Leaves *leaves) {
    if (!is_calm(self->calm)) return TRACED;
    int watched = is_any_true(self->watches);
    if (watched) return watched < 0 ? FAILED : TRACED;
    Kind slow = self->slow_watches || self->is_observed ? ask_slowly(self) : PLAIN;
    if (slow == FAILED || slow == TRACED) return slow;
    Kind found = find_gradients(self, leaves);
    return found == FAILED ? FAILED : (Kind)(slow | found);
}

/* New reference to what another way finds; NULL where that fails. */
static PyObject *look_elsewhere(Forms *self, PyObject *const *args, size_t flags,
                                PyObject *keywords) {
    if (self->otherwise == NULL) { /* of no use any more: its references were cleared */
        PyErr_SetString(PyExc_RuntimeError, "these forms are being deleted");
        return NULL;
    }
    PyObject *otherwise = Py_NewRef(self->otherwise);
    PyObject *result = PyObject_Vectorcall(otherwise, args, flags, keywords);
    Py_DECREF(otherwise);
    return result;
}

/* New reference to what was added, to None where a call is more than one, or to what another way
   finds; NULL where that fails. `*form` is the form that fits, where one does. */
static PyObject *look_up(Forms *self, Kind kind, const Leaves *leaves, Tensor *tensors,
                         Form **form) {
    if (kind == FAILED) return NULL;
    if (kind & TRACED) Py_RETURN_NONE;
    *form = find_form(self, leaves, tensors);
    if (*form != NULL) return Py_NewRef((*form)->result);
    if (kind & RECORDED) Py_RETURN_NONE;
    return look_elsewhere(self, leaves->args, (size_t)leaves->num_args, NULL);
}

static PyObject *forms_call(PyObject *object, PyObject *const *args, size_t flags,
                            PyObject *keywords) {
    Forms *self = (Forms *)object;
    Tensor tensors[MAX_LEAVES];
    Leaves leaves;
    Form *form = NULL;
    if (keywords) return look_elsewhere(self, args, flags, keywords);
    find_leaves(&leaves, args, PyVectorcall_NARGS(flags));
    Kind kind = kind_of(self, &leaves);
    PyObject *found = kind > 0 && kind & RECORDED
                          ? Py_NewRef(Py_None)
                          : look_up(self, kind, &leaves, tensors, &form);
    release_leaves(&leaves);
    return found;
}

_Thread_local const Reading *latest_reading;

static PyObject *run_with(PyObject *function, PyObject *const *args, Py_ssize_t count,
                          const Reading *reading) {
    latest_reading = reading;
    PyObject *result = PyObject_Vectorcall(function, args, (size_t)count, NULL);
    latest_reading = NULL;
    return result;
}

static PyObject *run_observed(PyObject *observer, PyObject *function, PyObject *const *args,
                              Py_ssize_t count) {
    PyObject *given[MAX_ARGUMENTS + 1] = {function};
    if (count > MAX_ARGUMENTS) return run_with(function, args, count, NULL);
    memcpy(given + 1, args, (size_t)count * sizeof(PyObject *));
    return run_with(observer, given, count + 1, NULL);
}

/* New reference to what runs a call: an attribute of what was found, else `anew`. */
static PyObject *find_function(const Forms *self, PyObject *found, Kind kind) {
    static PyObject *call_name, *recorded_name;
    if (call_name == NULL && (call_name = PyUnicode_InternFromString("call")) == NULL) return NULL;
    if (recorded_name == NULL &&
        (recorded_name = PyUnicode_InternFromString("recorded")) == NULL)
        return NULL;
    PyObject *function = NULL;
    if (found != Py_None) {
        function = PyObject_GetAttr(found, kind & RECORDED ? recorded_name : call_name);
        if (function != Py_None) return function; /* or NULL, with an exception */
        Py_DECREF(function);
    }
    if (self->anew == NULL)
        PyErr_SetString(PyExc_RuntimeError, "nothing runs calls that are not recognised");
    return Py_XNewRef(self->anew);
}

static PyObject *run_found(const Forms *self, PyObject *found, Kind kind, PyObject *const *args,
                           Py_ssize_t count, const Reading *reading) {
    PyObject *function = find_function(self, found, kind);
    if (function == NULL) return NULL;
    int is_observed = kind & OBSERVED && self->observer && function != self->anew;
    PyObject *result = is_observed ? run_observed(self->observer, function, args, count)
                                   : run_with(function, args, count, reading);
    Py_DECREF(function);
    return result;
}

static PyObject *forms_run(Forms *self, PyObject *const *args, Py_ssize_t count) {
    Tensor tensors[MAX_LEAVES];
    Leaves leaves;
    Form *form = NULL;
    PyObject *result = NULL;
    find_leaves(&leaves, args, count);
    Kind kind = kind_of(self, &leaves);
    PyObject *found = look_up(self, kind, &leaves, tensors, &form);
    if (found != NULL) {
        Reading reading = {(uintptr_t)found, args, leaves.objects, tensors, leaves.count};
        int is_kept = form != NULL && form->is_read_once;
        result = run_found(self, found, kind, args, count, is_kept ? &reading : NULL);
        Py_DECREF(found);
    }
    release_leaves(&leaves);
    return result;
}

/* Whether that is all there is to a call: it is plain, and was recognised and made, or asking what it
   is raised an exception. `*result` is what it gave, or NULL. */
int run_if_recognised(PyObject *object, PyObject *const *args, Py_ssize_t count,
                      PyObject **result) {
    Forms *self = (Forms *)object;
    Tensor tensors[MAX_LEAVES];
    Leaves leaves;
    find_leaves(&leaves, args, count);
    Kind kind = kind_of(self, &leaves);
    Form *form = kind == PLAIN ? find_form(self, &leaves, tensors) : NULL;
    *result = NULL;
    if (form != NULL) {
        PyObject *found = Py_NewRef(form->result);
        Reading reading = {(uintptr_t)found, args, leaves.objects, tensors, leaves.count};
        *result = run_found(self, found, PLAIN, args, count, form->is_read_once ? &reading : NULL);
        Py_DECREF(found);
    }
    release_leaves(&leaves);
    return form != NULL || kind == FAILED;
}

int are_forms_of(PyObject *object, Py_ssize_t num_args) {
    return Py_IS_TYPE(object, &forms_type) && ((Forms *)object)->num_args == num_args;
}

/* `starts` has for each argument the number of its first place. */
static int mark_written(Form *form, PyObject *positions, const Py_ssize_t *starts,
                        Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positions); i++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        if (position == -1 && PyErr_Occurred()) return -1;
        if (position < 0 || position >= count) {
            PyErr_SetString(PyExc_IndexError, "no argument has the position of a written one");
            return -1;
        }
        for (Py_ssize_t j = starts[position]; j < starts[position + 1]; j++)
            form->places[j].is_written = form->places[j].test == TENSOR;
    }
    return 0;
}

static Form *remember_all(const Leaves *leaves, const char *are_constant, PyObject *result,
                          const Rules *rules) {
    size_t num_bytes = sizeof(Form) + (size_t)leaves->num_spread * sizeof(Place);
    Form *form = PyMem_Calloc(1, num_bytes);
    if (form == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    form->result = Py_NewRef(result);
    form->rules = *rules;
    while (form->num_places < leaves->num_spread) {
        Py_ssize_t place = form->num_places++;
        if (remember(&form->places[place], leaves->spread[place], are_constant[place], rules)) {
            free_form(form); /* with what the last place holds so far */
            return NULL;
        }
    }
    return form;
}

/* Whether the numbers in an argument are; those that a function holds always are. */
static int is_constant(PyObject *args, Py_ssize_t position, PyObject *constants) {
    if (PyFunction_Check(PyTuple_GET_ITEM(args, position))) return 1;
    for (Py_ssize_t i = 0; constants && i < PyTuple_GET_SIZE(constants); i++)
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(constants, i)) == position) return 1;
    return 0;
}

static Form *make_form(PyObject *args, PyObject *written, PyObject *constants, PyObject *result,
                       const Rules *rules) {
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    Py_ssize_t starts[MAX_ARGUMENTS + 1] = {0};
    char are_constant[MAX_LEAVES];
    Leaves leaves = {.num_spread = 0};
    Form *form = NULL;
    int are_few = count <= MAX_ARGUMENTS;
    for (Py_ssize_t i = 0; are_few && i < count; i++) {
        are_few = spread_argument(&leaves, PyTuple_GET_ITEM(args, i)) == 0;
        starts[i + 1] = leaves.num_spread;
        memset(are_constant + starts[i], is_constant(args, i, constants),
               (size_t)(starts[i + 1] - starts[i]));
    }
    if (are_few) form = remember_all(&leaves, are_constant, result, rules);
    else PyErr_SetString(PyExc_RuntimeError, "more arguments than are looked at");
    release_leaves(&leaves);
    if (form == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        for (Py_ssize_t j = starts[i] + 1; j < starts[i + 1]; j++) form->places[j].is_item = 1;
    if (mark_written(form, written, starts, count)) {
        free_form(form);
        return NULL;
    }
    return form;
}

static PyObject *forms_add(Forms *self, PyObject *given) {
    PyObject *args, *written, *result, *constants = NULL;
    int is_read_once = 0, is_exact = 0;
    Rules rules = self->rules;
    if (!PyArg_ParseTuple(given, "O!O!O|pO!p", &PyTuple_Type, &args, &PyTuple_Type, &written,
                          &result, &is_read_once, &PyTuple_Type, &constants, &is_exact))
        return NULL;
    rules.are_sizes_fixed |= is_exact;
    Form *form = make_form(args, written, constants, result, &rules);
    if (form == NULL) return NULL;
    form->is_read_once = is_read_once;
    Form **forms = PyMem_Realloc(self->forms, (size_t)(self->count + 1) * sizeof(Form *));
    if (forms == NULL) {
        free_form(form);
        return PyErr_NoMemory();
    }
    self->forms = forms;
    self->forms[self->count++] = form;
    Py_RETURN_NONE;
}

static int forms_traverse(Forms *self, visitproc visit, void *arg) {
    Py_VISIT(self->otherwise);
    Py_VISIT(self->anew);
    Py_VISIT(self->watches);
    Py_VISIT(self->slow_watches);
    Py_VISIT(self->calm);
    Py_VISIT(self->are_recorded);
    Py_VISIT(self->observer);
    Py_VISIT(self->is_observed);
    for (Py_ssize_t i = 0; i < self->count; i++) Py_VISIT(self->forms[i]->result);
    return 0;
}

static void forget_forms(Forms *self) {
    Form **forms = self->forms;
    Py_ssize_t count = self->count;
    self->forms = NULL;
    self->count = self->latest = 0;
    for (Py_ssize_t i = 0; i < count; i++) free_form(forms[i]);
    PyMem_Free(forms);
}

static int forms_clear(Forms *self) {
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->anew);
    Py_CLEAR(self->watches);
    Py_CLEAR(self->slow_watches);
    Py_CLEAR(self->calm);
    Py_CLEAR(self->are_recorded);
    Py_CLEAR(self->observer);
    Py_CLEAR(self->is_observed);
    forget_forms(self);
    return 0;
}

static void forms_dealloc(Forms *self) {
    PyObject_GC_UnTrack(self);
    forms_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *forms_new(PyTypeObject *type, PyObject *given, PyObject *keywords) {
    PyObject *otherwise;
    Rules rules;
    if (keywords != NULL && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Forms takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(given, "OpLLL", &otherwise, &rules.are_sizes_fixed, &rules.low,
                          &rules.high, &rules.max_offset))
        return NULL;
    Forms *self = (Forms *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->call = forms_call;
    self->num_args = -1;
    self->otherwise = Py_NewRef(otherwise);
    self->rules = rules;
    return (PyObject *)self;
}

static PyObject *forms_forget(Forms *self, PyObject *Py_UNUSED(nothing)) {
    forget_forms(self);
    Py_RETURN_NONE;
}

static Py_ssize_t forms_length(Forms *self) { return self->count; }

static PyMethodDef forms_methods[] = {
    {"add", (PyCFunction)forms_add, METH_VARARGS,
     "add(args, written, result, is_read_once=False, constants=(), is_exact=False): give the result\n"
     "for arguments like these from now on; if exact, of these sizes and strides. Tensors at written\n"
     "positions must not overlap with others, numbers at positions of constants count by value. Where\n"
     "tensors are read once, what runs them launches with them as they were when it was called."},
    {"run", (PyCFunction)(void (*)(void))forms_run, METH_FASTCALL,
     "run(*args): what the attribute ``call`` of the result makes of the arguments, or ``recorded``\n"
     "where gradients are wanted; where there is no result, or None, what ``anew`` does."},
    {"clear", (PyCFunction)forms_forget, METH_NOARGS, "Forget all forms."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef forms_members[] = {
    {"otherwise", T_OBJECT_EX, offsetof(Forms, otherwise), 0, "Called where no form fits."},
    {"anew", T_OBJECT_EX, offsetof(Forms, anew), 0, "Runs calls that are not recognised."},
    {"watches", T_OBJECT, offsetof(Forms, watches), 0,
     "A tuple of functions; where one says true, the result is None: torch traces the call."},
    {"slow_watches", T_OBJECT, offsetof(Forms, slow_watches), 0,
     "Likewise; not asked again for 20 us after they have all said no in this thread."},
    {"calm", T_OBJECT, offsetof(Forms, calm), 0,
     "Dicts, each with a key and an object; where one has another there, the result is None."},
    {"are_recorded", T_OBJECT, offsetof(Forms, are_recorded), 0,
     "A function; where it says true and a tensor requires a gradient, the result is None."},
    {"is_observed", T_OBJECT, offsetof(Forms, is_observed), 0,
     "A function, asked like ``slow_watches``; where it says true, ``run`` calls ``observer``."},
    {"num_args", T_PYSSIZET, offsetof(Forms, num_args), 0,
     "How many arguments calls have that need nothing added to them; -1: not known."},
    {"observer", T_OBJECT, offsetof(Forms, observer), 0,
     "A function that is given what is to be called, and its arguments."},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods forms_sequence = {.sq_length = (lenfunc)forms_length};

PyTypeObject forms_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tensor_reader.Forms",
    .tp_doc = "Forms(otherwise, are_sizes_fixed, low, high, max_offset): results by the form of\n"
              "arguments; integers from low to high and offsets up to max_offset have 32 bits.",
    .tp_basicsize = sizeof(Forms),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = forms_new,
    .tp_dealloc = (destructor)forms_dealloc,
    .tp_traverse = (traverseproc)forms_traverse,
    .tp_clear = (inquiry)forms_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Forms, call),
    .tp_methods = forms_methods,
    .tp_members = forms_members,
    .tp_as_sequence = &forms_sequence,
};
