/* Where torch notes that the sign of a view is flipped lazily.

   DLPack does not tell, ``is_neg`` takes 60 ns, and torch promises no place. So views that differ
   in nothing else are compared word by word. Linux reads the memory for us: a wrong guess about
   what is a pointer then finds nothing, instead of ending the process. */

#if defined(__linux__)
#define _GNU_SOURCE
#include <sys/uio.h>
#include <unistd.h>
#endif

#include "exchange.h"

SignNote sign_note;

int ask_is_negated(PyObject *object) {
    PyObject *answer = PyObject_CallMethod(object, "is_neg", NULL);
    if (answer == NULL) PyErr_Clear();
    Py_XDECREF(answer);
    return answer == Py_True;
}

enum { MAX_OBJECT_WORDS = 16, NUM_WORDS = 32, MAX_NOTES = 1024 };

/* How many words of memory could be read. */
static int read_words(uint64_t address, uint64_t *words, int count) {
#if defined(__linux__)
    struct iovec here = {words, (size_t)count * sizeof(uint64_t)};
    struct iovec there = {(void *)(uintptr_t)address, here.iov_len};
    ssize_t num_bytes = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return num_bytes < 0 ? 0 : (int)(num_bytes / (ssize_t)sizeof(uint64_t));
#else
    (void)address, (void)words, (void)count;
    return 0;
#endif
}

static int is_single_bit(uint64_t bits) { return bits && !(bits & (bits - 1)); }

/* Bits that are set in what the second object points to, in words else like the first's. */
static int compare(PyObject *plain, PyObject *negated, SignNote *notes) {
    uint64_t pointers[2][MAX_OBJECT_WORDS], words[2][NUM_WORDS];
    int found = 0, num_pointers = (int)(Py_TYPE(plain)->tp_basicsize / (Py_ssize_t)sizeof(uint64_t));
    if (num_pointers > MAX_OBJECT_WORDS) num_pointers = MAX_OBJECT_WORDS;
    if (read_words((uintptr_t)plain, pointers[0], num_pointers) < num_pointers ||
        read_words((uintptr_t)negated, pointers[1], num_pointers) < num_pointers)
        return 0;
    for (int i = 0; i < num_pointers; i++) {
        int count = read_words(pointers[0][i], words[0], NUM_WORDS);
        int other = read_words(pointers[1][i], words[1], NUM_WORDS);
        for (int j = 0; j < count && j < other; j++) {
            uint64_t bits = words[0][j] ^ words[1][j];
            if (is_single_bit(bits) && words[1][j] & bits && found < MAX_NOTES)
                notes[found++] = (SignNote){(size_t)i * 8, (size_t)j * 8, bits};
        }
    }
    return found;
}

static int holds(const SignNote *note, const SignNote *notes, int count) {
    for (int i = 0; i < count; i++)
        if (notes[i].holder == note->holder && notes[i].word == note->word &&
            notes[i].bits == note->bits)
            return 1;
    return 0;
}

/* The one note that all pairs of objects agree on; without bits where there is none. */
SignNote find_sign_note(PyObject *pairs) {
    static SignNote common[MAX_NOTES], others[MAX_NOTES];
    int num_common = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        PyObject *pair = PyTuple_GET_ITEM(pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return (SignNote){0, 0, 0};
        int count = compare(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), others), kept = 0;
        for (int j = 0; i == 0 && j < count; j++) common[num_common++] = others[j];
        for (int j = 0; j < num_common; j++)
            if (holds(&common[j], others, count)) common[kept++] = common[j];
        num_common = kept;
    }
    return num_common == 1 ? common[0] : (SignNote){0, 0, 0};
}
