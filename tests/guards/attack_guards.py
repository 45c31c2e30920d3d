"""The guards of secrets in memory, of the console's sessions and of tokens. As guards.py."""

ATTACK_GUARDS = [
    dict(
        name="OpenSSL wipes what it has decrypted",
        file="common/http_client/http_tls.c",
        line="SSL_OP_NO_RENEGOTIATION | SSL_OP_CLEANSE_PLAINTEXT",
        becomes="SSL_OP_NO_RENEGOTIATION",
        test="unit/http_client_memory",
    ),
    dict(
        name="an idle connection has forgotten the last header",
        file="common/http_client/plain/http_plain.c",
        line="    http_answer_forget(&conn->answer);\n",
        becomes="",
        test="unit/http_client_memory",
    ),
    dict(
        name="the name of a claim is spelled plainly",
        file="api/auth_token.c",
        line="        if (is_disguised(name))\n",
        becomes="        if (false)\n",
        test="unit/auth",
    ),
]
