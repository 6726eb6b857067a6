#include "normlab/train/spike_record.h"

namespace normlab {

Json ToJson(const SpikeRecord& spike) {
  const stats::LossSpike& loss = spike.loss;
  Json moved = Json::array();
  for (const MovedSignal& signal : spike.moved)
    moved.push_back({{"what", signal.what},
                     {"name", signal.name},
                     {"step", signal.step},
                     {"ratio", ToJson(signal.ratio)}});
  return {{"step", loss.step},
          {"loss", ToJson(loss.loss)},
          {"before", ToJson(loss.before)},
          {"peak", ToJson(loss.peak)},
          {"recovered_after", loss.recovered_after ? Json(*loss.recovered_after) : Json()},
          {"first", moved.empty() ? Json() : moved[0]},
          {"moved", std::move(moved)}};
}

SpikeRecord SpikeFromJson(const Json& json) {
  SpikeRecord spike{.loss = {.step = json.at("step").get<int64_t>(),
                             .loss = NumberFromJson(json.at("loss"), "loss"),
                             .before = NumberFromJson(json.at("before"), "before"),
                             .peak = NumberFromJson(json.at("peak"), "peak")}};
  if (const Json& after = json.at("recovered_after"); !after.is_null())
    spike.loss.recovered_after = after.get<int64_t>();
  for (const Json& signal : json.at("moved"))
    spike.moved.push_back({.what = signal.at("what").get<std::string>(),
                           .name = signal.at("name").get<std::string>(),
                           .step = signal.at("step").get<int64_t>(),
                           .ratio = NumberFromJson(signal.at("ratio"), "ratio")});
  return spike;
}

}  // namespace normlab
