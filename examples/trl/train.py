"""Train the coding agent of LangChain in TRL's GRPOTrainer.

python train.py [STEPS]
"""

import sys
import tempfile

from trl import GRPOConfig, GRPOTrainer

from agentgym.plugins.trl import AgentRollouts

if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with (
        tempfile.TemporaryDirectory() as folder,
        AgentRollouts("coding", framework="langchain") as rollouts,
    ):
        trainer = GRPOTrainer(
            model=rollouts.model,
            rollout_func=rollouts,
            reward_funcs=rollouts.episode_reward,
            train_dataset=rollouts.dataset(),
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=8,
                num_generations=8,
                max_completion_length=768,
                learning_rate=4e-4,
                beta=0.0,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
            ),
        )
        trainer.train()
        rewards = [r["reward"] for r in trainer.state.log_history if "reward" in r]
        print("mean reward, step by step:", *(f"{reward:.2f}" for reward in rewards))
        counts = rollouts.ledger
        print(f"{counts.trained} of {counts.calls} model calls were trained")
        for reason, count in (counts.masked + counts.dropped).most_common():
            print(f"{count} were not: {reason}")
