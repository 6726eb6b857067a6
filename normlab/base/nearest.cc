#include "normlab/base/nearest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace normlab {
namespace {

// Optimal string alignment distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(previous);
    previous.swap(row);
  }
  return previous[b.size()];
}

}  // namespace

std::optional<std::string> Nearest(std::string_view text, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(text, candidate);
    const size_t allowed = std::max<size_t>(2, std::max(text.size(), candidate.size()) / 3);
    if (distance <= allowed && (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string UnknownName(std::string_view text, std::span<const std::string> candidates) {
  std::string message = fmt::format("\"{}\"; ", text);
  if (const auto nearest = Nearest(text, candidates))
    message += fmt::format("did you mean \"{}\"? ", *nearest);
  message += "known: ";
  for (size_t i = 0; i < candidates.size(); ++i) message += (i > 0 ? ", " : "") + candidates[i];
  return message;
}

}  // namespace normlab
