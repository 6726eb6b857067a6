// Trains a tiny GPT on a text through the API, with the norm that is asked for, and prints its losses.
//
//   train_tiny_gpt [NORM]      rmsnorm unless given: any name of `normlab list`
#include <cstdio>
#include <string>

#include <normlab/data/tokenizer.h>
#include <normlab/data/tokens.h>
#include <normlab/kernels/cpu/cpu_device.h>
#include <normlab/train/trainer.h>

int main(int argc, char** argv) {
  try {
    normlab::TrainConfig config;  // the preset tiny, made smaller
    config.model.emb_dim = 32;
    config.model.n_heads = 2;
    config.model.n_layers = 2;
    config.model.context_length = 32;
    config.batch = 8;
    config.steps = 60;
    config.learning_rate = 0.01;
    normlab::Set(config, "norm_type", argc > 1 ? argv[1] : "rmsnorm");
    config.Validate();

    std::string text;
    while (text.size() < 20000) text += "the quick brown fox jumps over the lazy dog. ";
    const normlab::ByteTokenizer tokenizer;
    const auto tokens = normlab::TokensFromIds(
        tokenizer.Encode(text), {.tokenizer = tokenizer.name(), .vocab_size = tokenizer.vocab_size()});

    const auto device = normlab::MakeCpuDevice({.threads = 2});
    normlab::Trainer trainer(*device, config, tokens);
    std::printf("%s, %lld parameters\n", config.model.norm_type.c_str(),
                static_cast<long long>(trainer.model().parameters().count()));
    while (trainer.next_step() < config.steps) {
      const normlab::StepResult step = trainer.Step();
      if (step.divergence) return std::printf("%s\n", step.divergence->ToString().c_str()), 1;
      if (step.step % 10 == 0)
        std::printf("step %3lld  loss %.4f nats\n", static_cast<long long>(step.step), step.loss);
    }
    const double test_loss = trainer.Evaluate()->loss;
    std::printf("test loss %.4f nats\n", test_loss);
    return test_loss < 1.0 ? 0
                           : 1;  // it starts near ln(256) = 5.5; the sentence repeats, so it is soon known
  } catch (const normlab::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
