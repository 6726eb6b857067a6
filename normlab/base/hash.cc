#include "normlab/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "normlab/base/error.h"

namespace normlab {
namespace {

std::string Hex128(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string HashHex(std::string_view bytes) { return Hex128(XXH3_128bits(bytes.data(), bytes.size())); }

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::Update(std::string_view bytes) {
  NL_CHECK(XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

std::string Hasher::Hex() const { return Hex128(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace normlab
