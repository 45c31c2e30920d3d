-- wrk: the longest page of a user's list, again and again. Argument: the token.
function init(args)
    text = wrk.format("GET", "/v1/card-requests?limit=100", {["Authorization"] = "Bearer " .. args[1]})
end

function request()
    return text
end

function done(summary, latency, requests)
    io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, summary.errors.status,
        summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
