export KIMI_PRUNING_BACKEND=deepinfra
export DEEPINFRA_API_KEY="sk_deepinfra_..."

# optionnels
export DEEPINFRA_TIMEOUT_MS=20000
export DEEPINFRA_MAX_DOCS=128
