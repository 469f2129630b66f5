-- Counts a partition again after groups went by themselves: what is indexed and not there any more is forgotten.
-- ARGV: base.
local version = redis.call('HINCRBY', totals, 'v', 1)
redis.call('DEL', totals)
redis.call('HSET', totals, 'v', version)
for _, owner in ipairs(redis.call('ZRANGE', base .. 'o', 0, -1)) do
  for _, kind in ipairs({'l:', 'p:'}) do
    for _, group in ipairs(redis.call('ZRANGE', base .. kind .. owner, 0, -1)) do
      local m = load(group)
      if m then
        count(m, 1)
      else
        redis.call('ZREM', base .. 'x', group)
        unindex(group, {owner = owner, pinned = kind == 'p:'})
      end
    end
  end
end
return version
