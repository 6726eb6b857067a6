/* Normalizes rows with LayerNorm through the C library, forward and backward, and checks the answers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <normlab.h>

static void must(normlab_status status) {
  if (status == NORMLAB_OK) return;
  fprintf(stderr, "%s\n", normlab_last_error());
  exit(1);
}

int main(void) {
  enum { kRows = 2, kCols = 4 };
  const float x[kRows][kCols] = {{1, 2, 3, 4}, {5, 5, 5, 5}};
  const float dy[kRows][kCols] = {{1, 0, 0, 0}, {1, 1, 1, 1}};
  const float weight[kCols] = {1, 1, 1, 1}, bias[kCols] = {0, 0, 0, 10};
  float y[kRows][kCols], dx[kRows][kCols], dweight[kCols], dbias[kCols];

  normlab_norm* norm;
  must(normlab_norm_create("layernorm", &norm));
  must(normlab_norm_set(norm, "eps", 1e-6));
  int64_t elements;
  must(normlab_norm_saved_elements(norm, kRows, kCols, &elements));
  float* saved = malloc((size_t)elements * sizeof(float));
  if (saved == NULL) return 1;

  must(normlab_norm_forward(norm, &(normlab_forward_args){.struct_size = sizeof(normlab_forward_args),
                                                          .rows = kRows,
                                                          .cols = kCols,
                                                          .x = x[0],
                                                          .weight = weight,
                                                          .bias = bias,
                                                          .y = y[0],
                                                          .saved = saved,
                                                          .saved_elements = elements}));
  must(normlab_norm_backward(norm, &(normlab_backward_args){.struct_size = sizeof(normlab_backward_args),
                                                            .rows = kRows,
                                                            .cols = kCols,
                                                            .x = x[0],
                                                            .dy = dy[0],
                                                            .weight = weight,
                                                            .saved = saved,
                                                            .saved_elements = elements,
                                                            .dx = dx[0],
                                                            .dweight = dweight,
                                                            .dbias = dbias}));
  free(saved);

  /* Row 0: mean 2.5, variance 1.25, so xhat = (x - 2.5) / sqrt(1.25 + eps). Row 1 has no spread: y is the
   * bias. */
  int right = normlab_norm_set(norm, "eps", -1) == NORMLAB_INVALID_ARGUMENT;
  normlab_norm_destroy(norm);
  const double root = sqrt(1.25 + 1e-6), xhat0 = -1.5 / root;
  for (int c = 0; c < kCols; ++c) {
    const double xhat = (x[0][c] - 2.5) / root, g = c == 0 ? 1 : 0;
    right = right && fabs(y[0][c] - (xhat + bias[c])) <= 2e-6 && y[1][c] == bias[c];
    right = right && fabs(dx[0][c] - (g - 0.25 - xhat * xhat0 / 4) / root) <= 1e-6;
    right = right && fabs(dweight[c] - g * xhat) <= 1e-6 && dbias[c] == g + 1;
  }
  printf("normlab %s: y[0][0] = %g, dx[0][1] = %g: %s\n", normlab_version(), y[0][0], dx[0][1],
         right ? "right" : "WRONG");
  return right ? 0 : 1;
}
