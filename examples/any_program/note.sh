#!/bin/sh
# An agent in a shell script: it writes the model's answer into a file.
request=$(cat)
body=$(jq -n --arg model "$OPENAI_MODEL" --arg text "$request" \
  '{model: $model, messages: [{role: "user", content: $text}]}')
curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Content-Type: application/json" \
  -H "Authorization: Bearer $OPENAI_API_KEY" -d "$body" \
  | jq -r '.choices[0].message.content' > note.txt
