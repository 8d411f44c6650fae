#!/bin/sh
# mini-swe-agent on one task, read from standard input, in the folder it is started in.
export MSWEA_CONFIGURED=true MSWEA_SILENT_STARTUP=true LITELLM_LOCAL_MODEL_COST_MAP=true
export MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT=1
exec "${MINI:-mini}" --config "$(dirname "$0")/mini.yaml" --model "openai/$OPENAI_MODEL" \
  --output /dev/null --task "$(cat)"
