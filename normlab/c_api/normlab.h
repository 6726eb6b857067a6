#ifndef NORMLAB_H_
#define NORMLAB_H_
/* normlab's row norms for C, and for every language that can call C: LayerNorm, RMSNorm and their relatives,
   forward and backward, in fp32, on arrays of the caller. Link libnormlab_c (CMake: normlab::c).

   Arrays. A matrix is [rows, cols]: element (r, c) stands at data[r * stride + c]. Strides are counted in
   floats, at least cols; 0 stands for cols. A vector is [cols], its elements adjacent. A pointer needs the
   alignment of a float and no more. Arrays are read and written during a call alone; none is kept.

   Aliasing. Two arrays that may alias are the same array with the same stride, or share no element;
   everything else that overlaps is refused before anything is written.

   Errors. Every function that can fail returns a status; after anything but NORMLAB_OK nothing was written,
   save after NORMLAB_INTERNAL_ERROR, and normlab_last_error() tells what was wrong. Nothing is thrown,
   printed or ended.

   Results have the same bits for any number of threads. Denormals count as zero inside a call; the caller's
   floating-point settings are kept. A NaN stays in its row, and in the gradients of the parameters.

   Threads. A handle serves one call at a time; handles of different threads are independent.

   Growth. Options have names, and argument structs begin with their own size, so that a program compiled
   against this header runs with every later library of the same major version. */

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): this is C */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#if defined(__GNUC__)
#define NORMLAB_API __attribute__((visibility("default")))
#else
#define NORMLAB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming,modernize-use-using): names of C */

typedef int normlab_status;
enum {
  NORMLAB_OK = 0,
  NORMLAB_INVALID_ARGUMENT = 1, /* asks for what is not there or not allowed; the message says what is */
  NORMLAB_OUT_OF_MEMORY = 2,
  NORMLAB_INTERNAL_ERROR = 3 /* a bug of normlab: please report the message */
};

/* "0.1.0": the version of the library that runs. */
NORMLAB_API const char* normlab_version(void);

/* What the last failed call of this thread found wrong, in one line of UTF-8; "" if none has failed. Valid
   until the next call that fails in this thread. */
NORMLAB_API const char* normlab_last_error(void);

/* The names that normlab_norm_create takes, by number: "layernorm", "fused_layernorm", ...; then NULL. */
NORMLAB_API const char* normlab_norm_name(size_t index);

/* A norm with its options and its scratch memory. */
typedef struct normlab_norm normlab_norm;

/* Makes a norm: a kind ("rmsnorm": the fastest implementation that there is) or an implementation of it
   ("fused_rmsnorm", "generic_rmsnorm", "handrolled_rmsnorm"). *norm becomes NULL where it fails. */
NORMLAB_API normlab_status normlab_norm_create(const char* name, normlab_norm** norm);

/* Frees a norm; NULL is fine. */
NORMLAB_API void normlab_norm_destroy(normlab_norm* norm);

/* Options, by name. What was set holds for later calls.

     "eps"            added inside the root: at least 0. 0 gives 0 (not NaN) for a row without spread
     "weight_offset"  the gain is weight + weight_offset: 0, or 1 where weights are stored as 1 + g
     "fraction"       of a row that partial_rmsnorm measures: above 0, at most 1; 0.0625 at first
     "threads"        of a call, 1 at first; 0 asks for as many as the process may use, and reads so.
                      Refused where the system does not let them start now: where it does not later, the
                      OpenMP runtime ends the process

   All must be finite as floats. Read-only, 1 or 0: "has_weight", "has_bias", "has_alpha", whether the norm
   knows this parameter. */
NORMLAB_API normlab_status normlab_norm_set(normlab_norm* norm, const char* option, double value);
NORMLAB_API normlab_status normlab_norm_get(const normlab_norm* norm, const char* option, double* value);

/* How many floats forward saves for backward, for rows x cols. What they mean is up to the library. */
NORMLAB_API normlab_status normlab_norm_saved_elements(const normlab_norm* norm, int64_t rows, int64_t cols,
                                                       int64_t* elements);

/* y = norm(x), row by row, or with a residual: sum = residual + x, y = norm(sum). */
typedef struct normlab_forward_args {
  size_t struct_size; /* sizeof(normlab_forward_args) */
  int64_t rows, cols; /* rows >= 0, cols >= 1 */
  const float* x;     /* [rows, cols] */
  int64_t x_stride;
  const float* residual; /* [rows, cols]; NULL: none */
  int64_t residual_stride;
  const float* weight; /* [cols]; NULL: the gain is 1 */
  const float* bias;   /* [cols]; NULL: 0 */
  const float* alpha;  /* [1], for norms that have it ("has_alpha"); else NULL */
  float* sum; /* [rows, cols] written, only with a residual; may alias x or residual; NULL: not wanted */
  int64_t sum_stride;
  float* y; /* [rows, cols] written; may alias x where there is no residual */
  int64_t y_stride;
  float* saved;           /* written, for backward; NULL: there will be none */
  int64_t saved_elements; /* floats that `saved` holds: at least normlab_norm_saved_elements */
} normlab_forward_args;

NORMLAB_API normlab_status normlab_norm_forward(normlab_norm* norm, const normlab_forward_args* args);

/* The gradients of norm(x), with dy the gradient of y. x is what was normalized: the sum, where there was a
   residual (dx is then the gradient of x and of residual alike). The norm has the options, and the call the
   weight, of the forward call. */
typedef struct normlab_backward_args {
  size_t struct_size; /* sizeof(normlab_backward_args) */
  int64_t rows, cols; /* those of forward */
  const float* x;     /* [rows, cols] */
  int64_t x_stride;
  const float* dy; /* [rows, cols] */
  int64_t dy_stride;
  const float* weight; /* [cols] or NULL, as in forward */
  const float* alpha;  /* as in forward */
  const float* saved;  /* of forward */
  int64_t saved_elements;
  float* dx; /* [rows, cols] written; may alias x or dy (not where it accumulates) */
  int64_t dx_stride;
  float* dweight;                /* [cols] written, the sum over rows; NULL: not wanted */
  float* dbias;                  /* [cols] likewise */
  float* dalpha;                 /* [1] likewise */
  int32_t accumulate_dx;         /* not 0: dx += instead of dx = */
  int32_t accumulate_parameters; /* not 0: dweight, dbias and dalpha += instead of = */
} normlab_backward_args;

/* With no rows the gradients of the parameters are zero, or stay where they accumulate. */
NORMLAB_API normlab_status normlab_norm_backward(normlab_norm* norm, const normlab_backward_args* args);

/* NOLINTEND(readability-identifier-naming,modernize-use-using) */

#ifdef __cplusplus
}
#endif

#endif /* NORMLAB_H_ */
