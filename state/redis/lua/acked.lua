-- Replicas have the write of this token. ARGV: base, then groups and tokens.
for i = 2, #ARGV, 2 do
  local key = ARGV[1] .. 'g:' .. ARGV[i]
  if redis.call('HGET', key, 'u') == ARGV[i + 1] then redis.call('HDEL', key, 'u') end
end
return 1
