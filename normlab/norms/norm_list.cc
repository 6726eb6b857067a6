#include "normlab/norms/norm_list.h"

#include "normlab/base/error.h"

namespace normlab {

const NormInfo& InfoOf(NormKind kind) {
  const size_t place = static_cast<size_t>(kind);
  NL_CHECK_LE(place + 1, AllNorms::kInfos.size());
  return AllNorms::kInfos[place];
}

}  // namespace normlab
