// The guard inside Redis, in the Lua that both scripts and functions run. One call compares, marks and writes: nothing
// else runs in between, and replicas and the append-only file get its writes as one.
//
// Tokens are compared as numbers, exact below 2^53, and not as text, whose order hangs on the server's locale. Marks are
// stored as 16 digits; any digits that stand for such a number are understood.

/** First word of the answer to a refusal. */
export const REFUSED = "STALE";
/** First word of the answer when the commands ran. */
export const ADMITTED = "OK";

/** Bumped with every change of the Lua below; part of the function's name, so that two versions run side by side. */
const VERSION = 1;
/** The Redis Function that {@link GUARD_FUNCTION_LIBRARY} brings. */
export const FUNCTION_NAME: string = `lockstep_guard_v${String(VERSION)}`;
const LIBRARY_NAME = FUNCTION_NAME;

/*
 * KEYS[1]   the marks: a hash with the fields "exclusive" and "shared"
 * KEYS[2..] the keys that the commands touch
 * ARGV[1]   the token
 * ARGV[2]   "exclusive" or "shared"
 * ARGV[3..] the commands, each behind its number of words
 */
const BODY = `local function token_of(digits)
  if type(digits) ~= 'string' or #digits > 16 or not string.match(digits, '^[0-9]+$') then return nil end
  local token = tonumber(digits, 10)
  if token > 9007199254740991 then return nil end
  return token
end

local function mark_of(key, field)
  local stored = redis.call('HGET', key, field)
  if not stored then return 0 end
  return token_of(stored)
end

local function guard(KEYS, ARGV)
  local token, mode = token_of(ARGV[1]), ARGV[2]
  if not token or token < 1 then return redis.error_reply('LOCKSTEP the token is not an integer from 1 to 2^53 - 1') end
  if mode ~= 'exclusive' and mode ~= 'shared' then return redis.error_reply('LOCKSTEP the mode is unknown') end
  local exclusive, shared = mark_of(KEYS[1], 'exclusive'), mark_of(KEYS[1], 'shared')
  if not exclusive or not shared then return redis.error_reply('LOCKSTEP the mark is not a token') end
  local seen = exclusive
  if mode == 'exclusive' and shared > seen then seen = shared end
  if token < seen then return { '${REFUSED}', string.format('%.0f', seen) } end

  local commands, at = {}, 3
  while at <= #ARGV do
    local words = tonumber(ARGV[at])
    local command = {}
    for offset = 1, words do command[offset] = ARGV[at + offset] end
    commands[#commands + 1] = command
    at = at + words + 1
  end

  local mark = exclusive
  if mode == 'shared' then mark = shared end
  if token > mark then redis.call('HSET', KEYS[1], mode, string.format('%016.0f', token)) end
  local answers = { '${ADMITTED}' }
  for index, command in ipairs(commands) do
    local answer = redis.pcall(unpack(command))
    if type(answer) == 'table' and answer.err then
      return redis.error_reply('LOCKSTEP command ' .. index .. ' of ' .. #commands .. ' failed: ' .. answer.err)
    end
    answers[index + 1] = answer
  end
  return answers
end
`;

/** For EVAL and EVALSHA. */
export const GUARD_SCRIPT: string = `${BODY}
return guard(KEYS, ARGV)
`;

/**
 * The same as a Redis Function (Redis 7 and newer), for `FUNCTION LOAD REPLACE`. Functions are stored with the data: they
 * survive a restart and reach the replicas.
 */
export const GUARD_FUNCTION_LIBRARY: string = `#!lua name=${LIBRARY_NAME}
${BODY}
redis.register_function('${FUNCTION_NAME}', guard)
`;
