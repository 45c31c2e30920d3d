"""examples/kubernetes without a cluster: what the manifests name exists, and each container starts in the image as they
say: user, read-only root, environment, files of Secrets. No schema is known here: a misspelt member of a manifest that
no check below reads would not be seen."""
import os
import shutil

import yaml

from podman import FOLDER, TOP, check, run_in_image

MANIFESTS = TOP / "examples/kubernetes"
API = {"ConfigMap": "v1", "Service": "v1", "Job": "batch/v1", "Deployment": "apps/v1",
       "PodDisruptionBudget": "policy/v1"}
# Of the Secrets in examples/kubernetes/README.md.
SECRETS = {"issuing-owner-password": ["pgpass"], "issuing-api-password": ["pgpass"],
           "issuing-worker-password": ["pgpass"], "issuing-card-keys": ["card_keys"], "issuing-api": ["jwks"],
           "issuing-worker": ["issuer_credential", "core_credential"]}
MEMBERS = {"name", "image", "command", "env", "ports", "lifecycle", "livenessProbe", "readinessProbe",
           "securityContext", "resources", "volumeMounts"}
JWKS = ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", '
        '"x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}')  # RFC 8037
USER = 10001


def documents():
    found = [document for file in sorted(MANIFESTS.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())]
    check(len(found) >= 7, "manifests")
    return found


def pods():
    """[(name, labels of the pod, its spec)]."""
    found = [document for document in documents() if document["kind"] in ("Deployment", "Job")]
    return [(document["metadata"]["name"], document["spec"]["template"]["metadata"]["labels"],
             document["spec"]["template"]["spec"]) for document in found]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


class Volumes:
    """The volumes of a pod as folders, as the kubelet makes them: root's, of the group fsGroup."""

    def __init__(self, name, pod):
        self.folder = FOLDER / "volumes" / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.group = pod["securityContext"]["fsGroup"]
        for volume in pod["volumes"]:
            self.fill(self.folder / volume["name"], volume)

    def file(self, path, text, mode):
        path.write_text(text)
        os.chown(path, 0, self.group)
        path.chmod(mode)

    def secret(self, folder, name, mode):
        check(name in SECRETS, "README.md has no Secret %s" % name)
        for key in SECRETS[name]:
            text = {"jwks": JWKS, "card_keys": card_keys(), "pgpass": "*:*:*:*:a password\n"}.get(key, "a credential\n")
            self.file(folder / key, text, mode)

    def fill(self, folder, volume):
        folder.mkdir(parents=True)
        if "configMap" in volume:
            data = next(document["data"] for document in documents() if document["kind"] == "ConfigMap"
                        and document["metadata"]["name"] == volume["configMap"]["name"])
            for name, text in data.items():
                self.file(folder / name, text, 0o644)
        elif "secret" in volume:
            self.secret(folder, volume["secret"]["secretName"], volume["secret"]["defaultMode"])
        elif "projected" in volume:
            for source in volume["projected"]["sources"]:
                self.secret(folder, source["secret"]["name"], volume["projected"]["defaultMode"])
        else:
            check(list(volume) == ["name", "emptyDir"], volume)
            os.chown(folder, 0, self.group)
            folder.chmod(0o2777)

    def options(self, mounts):
        for mount in mounts:
            source = self.folder / mount["name"] / mount.get("subPath", "")
            check(source.exists(), "no volume %s" % mount)
            yield from ("--volume", "%s:%s%s" % (source, mount["mountPath"], ":ro" if mount.get("readOnly") else ""))


def card_keys(made=[]):  # noqa: B006 - once
    if not made:
        folder = FOLDER / "volumes/keys"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.chown(folder, USER, USER)
        run_in_image("issuing-ctl", "keys", "generate", "/keys/card_keys", options=("--volume", "%s:/keys" % folder))
        made.append((folder / "card_keys").read_text())
    return made[0]


def every_manifest_is_of_a_kind_and_a_version_that_exist():
    for document in documents():
        check(API.get(document["kind"]) == document["apiVersion"], document["kind"])
        check(document["metadata"]["name"], "a name")


def selectors_find_the_pods_that_they_are_for():
    labels = {name: labels for name, labels, _ in pods()}
    for document in documents():
        name, spec = document["metadata"]["name"], document.get("spec", {})
        selector = spec.get("selector", {})
        wanted = selector.get("matchLabels", selector if document["kind"] == "Service" else {})
        check((document["kind"] in ("ConfigMap", "Job")) != bool(wanted), "%s selects %s" % (name, wanted))
        found = [pod for pod, its in labels.items() if wanted and wanted.items() <= its.items()]
        check(found == ([name] if wanted else []), "%s selects %s" % (name, found))
    budgets = {document["metadata"]["name"] for document in documents() if document["kind"] == "PodDisruptionBudget"}
    check(budgets == {"issuing-api", "issuing-worker"}, budgets)


def every_container_is_confined():
    for name, _, pod in pods():
        own = pod["securityContext"]
        check(own["runAsNonRoot"] and own["runAsUser"] == own["runAsGroup"] == own["fsGroup"] == USER, name)
        check(own["seccompProfile"] == {"type": "RuntimeDefault"}, name)
        check(pod["automountServiceAccountToken"] is False, name)
        for container in containers(pod):
            check(set(container) <= MEMBERS, set(container) - MEMBERS)
            check(container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                   "capabilities": {"drop": ["ALL"]}}, container["name"])


def probes_and_ports_are_those_of_the_image():
    listens = {"http": 8080, "admin": {"api": 8081, "worker": 8091}}
    for name, _, pod in pods():
        for container in pod["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            if name.startswith("issuing-migrate"):
                check(not ports, ports)
                continue
            check(ports.pop("admin") == listens["admin"][container["name"]], container["name"])
            check(ports == ({"http": 8080} if container["name"] == "api" else {}), ports)
            for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
                check(container[probe]["httpGet"] == {"path": path, "port": "admin"}, container[probe])
            check(pod["terminationGracePeriodSeconds"] > 30 + 5 + 5, "a drain takes issuer.timeout and 5 s")


def variables_of_services_would_be_refused_and_are_not_there():
    for name, _, pod in pods():
        check(pod["enableServiceLinks"] is False, name)
    variable = ("--env", "ISSUING_API_SERVICE_HOST=10.0.0.1")
    said = run_in_image("issuing-ctl", "--check-config", options=variable, status=78)
    check("ISSUING_API_SERVICE_HOST" in said, said)


def each_container_starts_in_the_image_with_the_files_and_variables_of_its_pod():
    for name, _, pod in pods():
        volumes = Volumes(name, pod)
        for container in containers(pod):
            options = list(volumes.options(container["volumeMounts"]))
            for variable in container.get("env", []):
                options += ["--env", "%(name)s=%(value)s" % variable]
            program, *words = container["command"]
            if program.startswith("issuing-"):
                words = ["--check-config"]
                passfile = next(row["value"] for row in container["env"] if row["name"] == "PGPASSFILE")
                shown = run_in_image("stat", "-c", "%a %u", passfile, options=options)
                check(shown == "600 %d" % USER, "libpq takes no other password file: %s" % shown)
            run_in_image(program, *words, options=options)


TESTS = [every_manifest_is_of_a_kind_and_a_version_that_exist, selectors_find_the_pods_that_they_are_for,
         every_container_is_confined, probes_and_ports_are_those_of_the_image,
         variables_of_services_would_be_refused_and_are_not_there,
         each_container_starts_in_the_image_with_the_files_and_variables_of_its_pod]
