# Makes the unit of one program of several, %i, from a unit of the only one: docs/install.md, Several programs on one host.
1,/^\[Unit\]/ { /^#/d }
/^Description=/ { s/ %i//; s/$/ of %i/ }
s/issuing-\(api\|migrate\)\.\(service\|socket\)/issuing-\1@%i.\2/g
s#^ExecStart=/[^ ]*/issuing-[a-z]*#& --config /etc/issuing/%i.conf#
s/^\(LoadCredential=.*:\)issuing\./\1%i./
# Ports and addresses differ from program to program, so they are not here: nothing can clash that nobody has set.
/^Environment=ISSUING_WORKER_ADMIN_LISTEN=/d
/^ListenStream=/d
# The service wants its socket.
/^Also=/d
