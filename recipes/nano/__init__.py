"""How the shipped policy was made: corpus, tokenizer, pretraining, rollout gate."""
