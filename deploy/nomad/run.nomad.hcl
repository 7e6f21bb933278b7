# A run on order: `nomad job dispatch -meta action=plan -meta source=URL -meta path=live/vpc plancha-run`.
variable "image" {
  default = "plancha-runner:dev"
}

variable "datastore" {
  default     = "http://plancha-datastore.example.com:8080"
  description = "URL of the datastore"
}

job "plancha-run" {
  type = "batch"

  parameterized {
    payload       = "forbidden"
    meta_required = ["action", "source"]
    meta_optional = ["revision", "path", "plan"]
  }

  # What an order leaves out. An undefined key would reach the runner as the text of its reference.
  meta {
    revision = ""
    path     = ""
    plan     = ""
  }

  group "run" {
    # A run that failed is not started again: Nomad does not look at exit codes, and an apply may have failed halfway. If the
    # node is lost, another one takes the same order: the next attempt of one run.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "runner" {
      driver = "docker"
      user   = "65532:65532"
      # 30 s more than PLANCHA_GRACE; the client's max_kill_timeout must allow it.
      kill_timeout = "330s"

      config {
        image           = var.image
        entrypoint      = ["runner"]
        args            = ["${NOMAD_META_action}"]
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]

        mount {
          type   = "tmpfs"
          target = "/tmp"
        }
      }

      env {
        PLANCHA_SOURCE        = "${NOMAD_META_source}"
        PLANCHA_REVISION      = "${NOMAD_META_revision}"
        PLANCHA_PATH          = "${NOMAD_META_path}"
        PLANCHA_PLAN          = "${NOMAD_META_plan}"
        PLANCHA_DATASTORE_URL = var.datastore
        PLANCHA_TOKEN_FILE    = "${NOMAD_SECRETS_DIR}/token"
        PLANCHA_GRACE         = "5m"
        PLANCHA_LOG_FORMAT    = "json"
        # Tools, and what a run could not send, are in the allocation's directory. /tmp must not run programs.
        HOME                            = "${NOMAD_TASK_DIR}"
        BURRITO_RUNNER_RUNNERBINARYPATH = "${NOMAD_TASK_DIR}/bin"
        TMPDIR                          = "${NOMAD_ALLOC_DIR}/tmp"
      }

      # The job's name is the order. It has a slash, which the name of a run cannot have.
      template {
        destination = "local/run.env"
        env         = true
        data        = "PLANCHA_RUN={{ env \"NOMAD_JOB_ID\" | replaceAll \"/\" \"-\" }}"
      }

      template {
        destination = "secrets/token"
        change_mode = "noop" # a run reads the new token by itself, and must not be started again
        perms       = "0400"
        uid         = 65532
        gid         = 65532
        data        = "{{ with nomadVar \"nomad/jobs/plancha-run\" }}{{ .token }}{{ end }}"
      }

      resources {
        cpu    = 500
        memory = 2048
      }
    }
  }
}
