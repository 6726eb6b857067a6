#pragma once
// Fingerprints of bytes: XXH3 with 128 bits (github.com/Cyan4973/xxHash), written as 32 hex digits. They tell
// files and data sets apart and find damage; they are no protection against an attacker.

#include <memory>
#include <string>
#include <string_view>

namespace normlab {

std::string HashHex(std::string_view bytes);

// The same over bytes that come in pieces: the cuts do not change the result.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Update(std::string_view bytes);
  std::string Hex() const;  // of everything so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace normlab
