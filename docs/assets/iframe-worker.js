// Browsers forbid workers on pages opened from disk; there, a hidden frame does the work of the search.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = message => this.receive(message)
      inside.importScripts = (...scripts) => Promise.all(scripts.map(script => load(inside.document, script)))
      this.waiting = []
      this.inside = inside
      load(inside.document, url).then(() => {
        this.ready = true
        this.waiting.forEach(message => this.deliver(message))
      })
    }

    postMessage(message) {
      this.ready ? this.deliver(message) : this.waiting.push(message)
    }

    deliver(data) {
      setTimeout(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })))
    }

    receive(data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      })
    }

    terminate() {
      this.inside.frameElement?.remove()
    }
  }

  const load = (page, url) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      page.body.appendChild(script)
    })
}
