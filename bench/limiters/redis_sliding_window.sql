-- limiter: Redis, sliding window in a script
-- needs: Redis
-- limit: any

-- setup:
CREATE TABLE log (user_id text NOT NULL, request text PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());

-- redis-script: count
local time = redis.call('TIME')
local now, window = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return false
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], window)
return 'OK'

-- step: insert
INSERT INTO log (user_id, request) VALUES ($1, $2);
