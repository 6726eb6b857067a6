// Prints the names of all norms: the least that needs a compiled library of normlab.
#include <cstdio>

#include <normlab/base/version.h>
#include <normlab/norms/norm_type.h>

int main() {
  std::printf("normlab %s:", NORMLAB_VERSION);
  for (const std::string& name : normlab::KnownNormTypes()) std::printf(" %s", name.c_str());
  std::printf("\n");
}
